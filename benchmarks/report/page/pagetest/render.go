package pagetest

import (
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Size of a figure in pixels, as package page draws it.
const (
	Width  = 640
	Height = 320
)

// stacked is a style that leaves nothing of a page but its figures, one below the other from the
// upper left corner.
const stacked = `<style>body>*{display:none!important}body>svg{` +
	`display:block!important;width:640px;height:320px;max-width:none}body{margin:0;padding:0;max-width:none}</style>`

// Figures returns the n figures of a page, as a browser draws them on a screen that is dark or not.
// It skips the test where there is no chromium.
func Figures(t *testing.T, html []byte, n int, dark bool) []Figure {
	t.Helper()
	img := Shot(t, []byte(strings.Replace(string(html), "</head>", stacked+"</head>", 1)), Width, n*Height, dark)
	var figures []Figure
	for i := range n {
		figures = append(figures, Figure{img, i * Height})
	}
	return figures
}

// Shot returns a page as a browser draws it in a window of so many pixels, on a screen that is dark
// or not. It skips the test where there is no chromium.
func Shot(t *testing.T, html []byte, width, height int, dark bool) image.Image {
	t.Helper()
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium: ", err)
	}
	dir := t.TempDir()
	file, shot := filepath.Join(dir, "page.html"), filepath.Join(dir, "page.png")
	if err := os.WriteFile(file, html, 0o600); err != nil {
		t.Fatal(err)
	}
	scheme := 1
	if dark {
		scheme = 0
	}
	cmd := exec.CommandContext(t.Context(), browser, "--headless", "--no-sandbox", "--disable-gpu",
		"--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
		"--disable-background-networking", "--force-device-scale-factor=1",
		"--user-data-dir="+filepath.Join(dir, "profile"),
		fmt.Sprintf("--blink-settings=preferredColorScheme=%d", scheme), fmt.Sprintf("--window-size=%d,%d", width,
			height), "--screenshot="+shot, "file://"+file)
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_CACHE_HOME="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("chromium: %v\n%s", err, out)
	}
	f, err := os.Open(shot)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	if b := img.Bounds(); b.Dx() < width || b.Dy() < height {
		t.Fatalf("the picture has %v", b)
	}
	return img
}

// Color is the color of a pixel as #rrggbb.
func Color(img image.Image, x, y int) string {
	c := color.NRGBAModel.Convert(img.At(x, y)).(color.NRGBA)
	return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B)
}

// Figure is a picture of a figure.
type Figure struct {
	page image.Image
	top  int
}

// At is the color of a pixel, counted from the figure's upper left corner, as #rrggbb.
func (f Figure) At(x, y int) string {
	return Color(f.page, x, f.top+y)
}

// Rows are the uppermost and the lowest row in which a column of pixels has a color
// exactly, -1 if none has.
func (f Figure) Rows(x int, of string) (top, bottom int) {
	top, bottom = -1, -1
	for y := range Height {
		if f.At(x, y) != of {
			continue
		}
		if top < 0 {
			top = y
		}
		bottom = y
	}
	return top, bottom
}

// Count is how many pixels have a color exactly.
func (f Figure) Count(of string) (n int) {
	for y := range Height {
		for x := range Width {
			if f.At(x, y) == of {
				n++
			}
		}
	}
	return n
}

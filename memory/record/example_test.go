package record_test

import (
	"fmt"

	"txnode/memory/layout"
	"txnode/memory/record"
)

// An image is laid out in place, and verifies itself when it is read.
func Example() {
	addr := layout.MakeAddr(1, 0)
	id := record.MakeTxID(7, 42)
	key, value := []byte("account1"), []byte("balance")

	class, _ := record.ClassFor(len(key), len(value))
	img := make(record.Image, class.Size())
	n := img.Put(addr, id, record.Live, 3, class, 0, key, value)
	_, err := img.Check(addr)
	fmt.Println(n, "bytes,", img.Meta().State(), img.Version(), err)
	fmt.Printf("%s=%s, unlocked: %v\n", img.Key(), img.Value(), img.Stable())

	img.SetGuard(record.HeldBy(record.MakeTxID(8, 1)))
	fmt.Println("locked by", img.Lock())

	img[record.KeyOff]++ // a damaged key
	_, err = img.Check(addr)
	fmt.Println(err)
	// Output:
	// 64 bytes, live c7.42 <nil>
	// account1=balance, unlocked: true
	// locked by c8.1
	// record: checksum mismatch
}

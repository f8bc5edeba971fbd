# Reads the events of 'go test -json' and prints a line per package, the output
# of what failed, and as last line "N passed, N failed, N skipped". It stands in
# for gotestsum where that cannot be installed. Counted are tests and subtests,
# and packages that fail outside of any test (build errors, panics in TestMain).

function field(name,    at, rest) {
	at = index($0, "\"" name "\":\"")
	if (at == 0) return ""
	rest = substr($0, at + length(name) + 4)
	return match(rest, /^([^"\\]|\\.)*/) ? substr(rest, 1, RLENGTH) : ""
}

function plain(text) {
	gsub(/\\n/, "\n", text)
	gsub(/\\t/, "\t", text)
	gsub(/\\u003c/, "<", text)
	gsub(/\\u003e/, ">", text)
	gsub(/\\u0026/, "\\&", text)
	gsub(/\\"/, "\"", text)
	gsub(/\\\\/, "\\", text)
	return text
}

{
	action = field("Action")
	package = field("Package")
	test = field("Test")
	id = package "\t" test
}

action == "output" || action == "build-output" {
	if (action == "build-output") id = field("ImportPath") "\t"
	output[id] = output[id] plain(field("Output"))
}

action == "pass" || action == "fail" || action == "skip" {
	if (test != "") {
		count[action]++
		if (action == "fail") {
			failures[package]++
			report = report "--- " package " " plain(test) "\n" output[id]
		}
	} else {
		if (action != "skip") print action "\t" package # skip: a package without tests
		if (action == "fail" && !failures[package]) {
			count["fail"]++
			build = field("FailedBuild")
			report = report "--- " package "\n" (build != "" ? output[build "\t"] : "") output[id]
		}
	}
	delete output[id]
}

END {
	if (report != "") printf "\n%s", report
	printf "\n%d passed, %d failed, %d skipped\n", count["pass"], count["fail"], count["skip"]
	exit count["fail"] > 0
}

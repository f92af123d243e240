module pintle.dev/bench/harness

go 1.26.0

module github.com/monolock-dev/monolock/testing/chaos/worker-go

go 1.21

require github.com/monolock-dev/monolock-go v0.0.0

replace github.com/monolock-dev/monolock-go => ../../../clients/go

module github.com/monolock-dev/monolock-go

go 1.21

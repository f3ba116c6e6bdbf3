module remora.dev/clients

go 1.24.0

require (
	github.com/Flagsmith/flagsmith-go-client/v3 v3.7.0
	github.com/open-feature/go-sdk v1.17.0
	github.com/open-feature/go-sdk-contrib/providers/ofrep v0.1.7
)

require (
	github.com/blang/semver/v4 v4.0.0 // indirect
	github.com/go-logr/logr v1.4.3 // indirect
	github.com/go-resty/resty/v2 v2.14.0 // indirect
	github.com/itlightning/dateparse v0.2.0 // indirect
	go.uber.org/mock v0.6.0 // indirect
	golang.org/x/exp v0.0.0-20230713183714-613f0c0eb8a1 // indirect
	golang.org/x/net v0.27.0 // indirect
)

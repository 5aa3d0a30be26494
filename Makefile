# Bare "make" prints help. Everything here works from a fresh clone with Go, git
# and make.

GO            ?= go
FUZZTIME      ?= 20s
BENCHTIME     ?= 1s
MINUTES       ?= 5
PICTURES      ?= docs
PKGS          ?= ./...
GOLANGCI_LINT  = v2.15.0
TOOL           = $(GO) tool -modfile=tools/go.mod

.DEFAULT_GOAL := help
.PHONY: help demo chat worker screenshots build dist test check format vet lint staticcheck golangci vuln tidy cross bench fuzz soak clean

help: ## print this
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The demo needs no key: it replays recorded conversations, while the code in them
# really runs in the sandbox. The variables are unset so that it never spends
# anybody's money.
KEYLESS = env -u OPENAI_API_KEY -u OPENAI_BASE_URL -u OPENAI_MODEL -u RUNTIME_API_KEY -u RUNTIME_API_URL

demo: ## install the sandbox where it is missing, compute fib(40) in it and draw a chart of fixtures/sales.csv
	@sh tools/sandbox.sh
	$(GO) build -o bin/askpy ./cmd/askpy
	$(KEYLESS) bin/askpy "compute fib(40)"
	$(KEYLESS) bin/askpy --replay fixtures/sales.yaml --file fixtures/sales.csv --out bin/demo \
		"Which city sells the most, and how do they compare? Draw a chart."

# With OPENAI_API_KEY set a model answers, else a script that runs real programs.
chat: ## install the sandbox where it is missing and serve the chat of examples/chat
	@sh tools/sandbox.sh
	@mkdir -p .cache
	cd examples/chat && $(GO) build -o ../../bin/chat .
	bin/chat -db .cache/chat.db

worker: ## install PostgreSQL and the sandbox where they are missing, and kill a worker whose run another one finishes
	@sh tools/sandbox.sh
	@sh tools/postgres.sh
	cd examples/worker && $(GO) build -o ../../bin/worker . && $(GO) build -o ../../bin/worker-demo ./demo
	bin/worker-demo -worker bin/worker

screenshots: ## make the pictures of askpy and of the chat in PICTURES (docs), the latter with Chromium
	@mkdir -p $(PICTURES)
	$(GO) test -count=1 -run TestPictures ./cmd/askpy -pictures $(abspath $(PICTURES))
	cd examples/chat && $(GO) test -count=1 -run 'TestBrowser_(chart|approval)' -screenshots $(abspath $(PICTURES)) .

build: ## build every package, and askpy into bin/
	$(GO) build ./...
	$(GO) build -trimpath -o bin/askpy ./cmd/askpy

dist: ## build the files of a release of askpy for SYSTEMS (all) into dist/
	$(GO) run ./internal/release $(if $(TAG),-tag $(TAG)) $(SYSTEMS)

test: ## install the sandbox where it is missing and run the tests of PKGS (./...)
	@GO="$(GO)" sh tools/test.sh $(PKGS)

check: format vet lint vuln tidy test ## everything that a change has to pass

format: ## fail where gofmt would change something
	@out=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$out" || { echo "gofmt would change:"; echo "$$out"; exit 1; }

vet: ## go vet
	$(GO) vet ./...

lint: staticcheck golangci ## staticcheck, and golangci-lint where it is installed

# The linters run at their pinned versions, or say that they did not run.
# Tests hold types that are wrong on purpose, and crash on purpose; what is wrong
# with them otherwise golangci-lint finds, which can be told so.
staticcheck:
	@if $(TOOL) -n staticcheck >/dev/null 2>&1 && $(TOOL) staticcheck -version >/dev/null 2>&1; \
	then echo "staticcheck ./..."; $(TOOL) staticcheck -tests=false ./...; \
	else echo "SKIPPED staticcheck: its modules cannot be fetched"; fi

golangci:
	@v=v$$(golangci-lint version --short 2>/dev/null | sed 's/^v//'); \
	if [ "$$v" = "$(GOLANGCI_LINT)" ]; then echo "golangci-lint run"; golangci-lint run; \
	else echo "SKIPPED golangci-lint: $(GOLANGCI_LINT) is not installed"; fi

vuln: ## govulncheck, when its database can be reached
	@out=$$($(TOOL) govulncheck ./... 2>&1) && { echo "$$out"; exit 0; }; \
	case "$$out" in \
	*"no such host"*|*"dial tcp"*|*"connection refused"*|*"i/o timeout"*|*"no route to host"*|*"network is unreachable"*) \
		echo "SKIPPED govulncheck: the network does not allow it" ;; \
	*) echo "$$out"; exit 1 ;; esac

tidy: ## fail where go mod tidy would change something
	@out=$$($(GO) mod tidy -diff 2>&1) && exit 0; \
	case "$$out" in \
	*"no such host"*|*"dial tcp"*|*"connection refused"*|*"i/o timeout"*|*"no route to host"*|*"network is unreachable"*) \
		echo "SKIPPED go mod tidy -diff: the network does not allow it" ;; \
	*) echo "$$out"; exit 1 ;; esac

cross: ## vet for the systems that this one is not
	GOOS=darwin GOARCH=arm64 $(GO) vet ./...
	GOOS=windows GOARCH=amd64 $(GO) vet ./...

bench: ## run the benchmarks of PKGS (./...), each for BENCHTIME (1s), and print the table that README shows
	$(GO) run ./internal/bench $(if $(README),-w=$(README)) -benchtime $(BENCHTIME) $(PKGS)

fuzz: ## run each fuzz target for FUZZTIME (20s)
	@grep -rlE '^func Fuzz[A-Z]' --include='*_test.go' . | while read -r file; do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$file"); do \
			echo "$$target ($$(dirname "$$file"))"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")" </dev/null || exit 1; \
		done; \
	done

soak: ## chats, crashes and faults for MINUTES (5), in which nothing may grow
	@sh tools/sandbox.sh
	cd examples/chat && $(GO) test -count=1 -run TestSoak -timeout 0 -v . -minutes $(MINUTES)

clean: ## remove what was built
	rm -rf bin dist

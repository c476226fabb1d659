.DEFAULT_GOAL := help
.PHONY: help demo test test-short test-containers verify licences sbom bench chaos screenshots image up down

COMPOSE = $(shell docker compose version >/dev/null 2>&1 && echo docker compose || echo docker-compose)

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

demo: ## everything on this machine with sample data; ends by itself (ARGS="--serve" keeps it running)
	go run . demo $(ARGS)

test: ## all tests against real services; installs or starts what is missing, saying so
	.ci/setup services
	go test -race -shuffle=on -timeout 20m $(ARGS) ./...

test-short: ## the tests that need no service and no time
	go test -short -shuffle=on -timeout 5m $(ARGS) ./...

test-containers: ## the adapters, and compose.yaml as a whole, in containers and nothing else; pulls the images that are missing
	.ci/setup containers
	EXPORTD_TEST_REQUIRE=containers,compose go test -race -shuffle=on -timeout 20m $(ARGS) ./containertest ./db/... ./broker/... ./s3out/... ./e2e/compose

verify: ## format, go.mod, vet, staticcheck, OpenAPI, alerts, chart, licences, SBOM, the same bytes twice, layers, known vulnerabilities
	.ci/setup lint
	.ci/verify

licences: ## docs/dependencies.md anew: every module with its licence
	go -C .ci/licences run . -write

sbom: ## dist/exportd.cdx.json: all that is in the program, in CycloneDX
	.ci/setup release
	.ci/sbom dist/exportd.cdx.json

chaos: ## faults of every kind against the whole system, then its invariants (SEED=7 DURATION=10m ARGS=-race)
	.ci/setup services
	go run ./chaos $(if $(SEED),-seed $(SEED)) $(if $(DURATION),-duration $(DURATION)) $(ARGS)

bench: ## speed of the parts (ARGS="-bench=Name -count=6"), then of the whole beside its limit and a peer (WHOLE="-full -out ../docs/performance.md")
	.ci/setup services
	go test -run '^$$' -bench . -benchmem -timeout 30m $(ARGS) ./...
	go run -C bench . $(WHOLE)

SHOTS = $(addsuffix .png,overview-wide-light overview-wide-dark job-running-wide-light job-running-phone-dark job-300-wide-light job-10000-wide-dark \
	dead-letters-wide-light chunk-wide-light jobs-phone-light)

screenshots: ## every page of the console, light and dark, wide and phone, into docs/screenshots/all; those of docs/console.md anew
	.ci/setup services
	mkdir -p docs/screenshots/all
	EXPORTD_TEST_REQUIRE=chromium EXPORTD_SCREENSHOTS=$(CURDIR)/docs/screenshots/all go test -count=1 -run TestScreenshots -timeout 15m ./e2e
	cd docs/screenshots/all && cp $(SHOTS) ..

VERSION = $(shell git describe --tags --always --dirty 2>/dev/null)
COMMIT = $(shell git rev-parse HEAD 2>/dev/null)
IMAGE ?= exportd:dev

image: ## the container image (IMAGE=exportd:dev)
	docker build -f deploy/Dockerfile --build-arg VERSION=$(VERSION) --build-arg COMMIT=$(COMMIT) -t $(IMAGE) .

up: .env ## the whole system in containers; the API on http://127.0.0.1:8080 (ARGS="--scale consumer=4"; COMPOSE_PROFILES=observability)
	VERSION=$(VERSION) COMMIT=$(COMMIT) $(COMPOSE) up --build -d $(ARGS)

down: .env ## stop and remove the containers and their data
	COMPOSE_PROFILES=observability $(COMPOSE) down -v

.env:
	cp .env.example .env

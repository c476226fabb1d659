package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"exportd/broker/brokertest"
	"exportd/db/dbtest"
	"exportd/s3out/s3test"
)

type composeService struct {
	Image       string
	Restart     string
	ReadOnly    bool     `yaml:"read_only"`
	CapDrop     []string `yaml:"cap_drop"`
	SecurityOpt []string `yaml:"security_opt"`
	Environment map[string]string
	Ports       []string
	Volumes     []string
	Profiles    []string
	Healthcheck struct {
		Test    []string
		Disable bool
	}
}

func composeServices(t *testing.T, text string) map[string]composeService {
	t.Helper()
	var file struct {
		Services map[string]composeService
	}
	if err := yaml.Unmarshal([]byte(text), &file); err != nil {
		t.Fatal(err)
	}
	return file.Services
}

const ourImage = "${IMAGE:-exportd:dev}"

// faultsOfService names what a service should not be like.
func faultsOfService(s composeService) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if s.Image != ourImage && !regexp.MustCompile(`^[\w./-]+:v?\d[\w.-]*$`).MatchString(s.Image) {
		fault("the image %s has no version", s.Image)
	}
	if s.Image == ourImage && (!s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Contains(s.SecurityOpt, "no-new-privileges:true")) {
		fault("it may write to its root, has capabilities or may gain privileges")
	}
	if (len(s.Healthcheck.Test) == 0 || s.Healthcheck.Disable) && s.Restart != "no" {
		fault("it goes on and nobody looks after its health")
	}
	for name, value := range s.Environment {
		if regexp.MustCompile(`PASSWORD|SECRET_KEY|ACCESS_KEY|TOKEN`).MatchString(name) && !regexp.MustCompile(`^\$\{[A-Z0-9_]+:\?[^}]+\}$`).MatchString(value) {
			fault("%s is told, or may be empty", name)
		}
		if regexp.MustCompile(`://[^/@]*:[^/@]*@`).MatchString(value) {
			fault("%s has a password in its address", name)
		}
	}
	for _, port := range s.Ports {
		if !strings.HasPrefix(port, "127.0.0.1:${") {
			fault("the port %s is not on loopback, or cannot be chosen", port)
		}
	}
	return faults
}

func TestFaultsOfComposeServicesAreFound(t *testing.T) {
	services := composeServices(t, `
services:
  good: {image: "postgres:18", healthcheck: {test: ["CMD", "true"]}, environment: {A_PASSWORD: "${A:?is not set}", A_URL: "http://a:1/"}, ports: ["127.0.0.1:${P:-1}:1"]}
  once: {image: "${IMAGE:-exportd:dev}", restart: "no", read_only: true, cap_drop: [ALL], security_opt: ["no-new-privileges:true"]}
  bad: {image: "postgres:latest", healthcheck: {disable: true}, environment: {A_PASSWORD: "${A:-x}", A_SECRET_KEY: x, A_URL: "http://a:${B}@c/"}, ports: ["1:1"]}
  ours: {image: "${IMAGE:-exportd:dev}", restart: "no", read_only: true, cap_drop: [NET_RAW]}`)
	for name, want := range map[string]int{"good": 0, "once": 0, "bad": 6, "ours": 1} {
		if faults := faultsOfService(services[name]); len(faults) != want {
			t.Errorf("%s: %q, want %d faults", name, faults, want)
		}
	}
}

func TestComposeKeepsItsServicesSafe(t *testing.T) {
	text := read(t, "compose.yaml")
	services := composeServices(t, text)
	for name, s := range services {
		for _, fault := range faultsOfService(s) {
			t.Errorf("%s: %s", name, fault)
		}
	}
	if len(services) < 8 {
		t.Errorf("only %d services", len(services))
	}
	// The tests of the adapters run on the same.
	for name, image := range map[string]string{"postgres": dbtest.Image, "activemq": brokertest.Image, "s3": s3test.Image} {
		if services[name].Image != image {
			t.Errorf("%s is %s, the tests run on %s", name, services[name].Image, image)
		}
	}

	uses, names := map[string]bool{}, map[string]bool{}
	for _, m := range regexp.MustCompile(`\$\{([A-Z0-9_]+)(:\?|:-\d)`).FindAllStringSubmatch(text, -1) {
		uses[m[1]] = true
	}
	for _, m := range regexp.MustCompile(`(?m)^#?([A-Z0-9_]+)=`).FindAllStringSubmatch(read(t, ".env.example"), -1) {
		names[m[1]] = true
	}
	if !maps.Equal(uses, names) {
		t.Errorf("compose.yaml asks for %v, .env.example names %v", slices.Sorted(maps.Keys(uses)), slices.Sorted(maps.Keys(names)))
	}
}

func TestWhatObservesComposeFindsIt(t *testing.T) {
	services := composeServices(t, read(t, "compose.yaml"))
	scraped := regexp.MustCompile(`names: \[(.*)\]`).FindStringSubmatch(read(t, "deploy/prometheus/prometheus.yml"))
	if scraped == nil {
		t.Fatal("nothing is scraped by name")
	}
	for name := range strings.SplitSeq(scraped[1], ", ") {
		if services[name].Environment["EXPORTD_HTTP_ADDR"] != ":8080" {
			t.Errorf("%s is scraped at port 8080 and does not serve there", name)
		}
	}
	sources := read(t, "deploy/grafana/provisioning/datasources/prometheus.yml")
	if !strings.Contains(sources, "url: http://prometheus:9090") || services["prometheus"].Image == "" {
		t.Error("the dashboards look elsewhere for Prometheus")
	}
	folder := regexp.MustCompile(`path: (/[\w/]+)`).FindStringSubmatch(read(t, "deploy/grafana/provisioning/dashboards/exportd.yml"))
	if folder == nil || !slices.Contains(services["grafana"].Volumes, "./deploy/grafana/dashboards:"+folder[1]+":ro") {
		t.Errorf("the dashboards are looked for in %q; mounted is %q", folder, services["grafana"].Volumes)
	}
}

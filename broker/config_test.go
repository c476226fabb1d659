package broker_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"exportd/broker"
)

func TestValidateSaysEverythingInPlainWords(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(empty, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		cfg  broker.Config
		want []string // parts of one fault each
	}{
		{"fine", broker.Config{URLs: []string{"stomp://h:61613", "stomp+ssl://[::1]:61614", "stomp://h"}}, nil},
		{"none", broker.Config{}, []string{"no broker URL"}},
		{"scheme", broker.Config{URLs: []string{"tcp://h:61616"}}, []string{"scheme must be stomp or stomp+ssl"}},
		{"bare host", broker.Config{URLs: []string{"localhost:61613"}}, []string{"scheme"}},
		{"no host", broker.Config{URLs: []string{"stomp://:61613"}}, []string{"no host"}},
		{"port", broker.Config{URLs: []string{"stomp://h:0", "stomp://h:70000", "stomp://h:x"}}, []string{"between 1 and 65535", "between 1 and 65535", "cannot be read"}},
		{"rest", broker.Config{URLs: []string{"stomp://h:1/x", "stomp://h:1?a=b"}}, []string{"nothing may follow", "nothing may follow"}},
		{"CA without TLS", broker.Config{URLs: []string{"stomp://h"}, CAFile: empty}, []string{"no broker URL is stomp+ssl", "holds no PEM"}},
		{"CA missing", broker.Config{URLs: []string{"stomp+ssl://h"}, CAFile: "/nowhere"}, []string{"/nowhere"}},
		{"password alone", broker.Config{URLs: []string{"stomp://h"}, Password: "x"}, []string{"without a user"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.cfg.Validate()
			if len(got) != len(c.want) {
				t.Fatalf("got %q", got)
			}
			for i := range got {
				if !strings.Contains(got[i], c.want[i]) {
					t.Errorf("got %q, want something about %q", got[i], c.want[i])
				}
			}
		})
	}
}

func TestValidateNeverRepeatsAPassword(t *testing.T) {
	for _, url := range []string{"stomp://u:sesame@h:61613", "stomp://u:sesame@h:x", "tcp://u:sesame@h", "stomp://u:sesame@h:0/%zz"} {
		for _, fault := range (broker.Config{URLs: []string{url}}).Validate() {
			if strings.Contains(fault, "sesame") {
				t.Error(fault)
			}
		}
	}
}

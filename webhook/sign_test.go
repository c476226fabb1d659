package webhook_test

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"exportd/webhook"
)

// The example that is published with the specification.
func TestSignaturesAreThoseOfStandardWebhooks(t *testing.T) {
	t.Parallel()
	const example = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	const want = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	sign := func(text string) string {
		secrets, err := webhook.ParseSecrets(text)
		if err != nil {
			t.Fatal(err)
		}
		return secrets.Sign("msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	}
	if got := sign(example); got != want {
		t.Errorf("got %s", got)
	}
	if got := sign(secret + "  " + example); !strings.HasSuffix(got, " "+want) || strings.Count(got, "v1,") != 2 {
		t.Errorf("with two secrets: %s", got)
	}
}

func TestASecretThatIsNoneIsRefusedAndNotQuoted(t *testing.T) {
	t.Parallel()
	of := func(n int) string { return "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, n)) }
	for text, want := range map[string]string{
		"": "no secret", " ": "no secret", "hunter2": "secret 1 does not begin with whsec_", secret + " whsec_hunter2!": "secret 2 is not base64",
		of(23): "23 bytes", of(65): "65 bytes", "whsec_": "0 bytes",
	} {
		if _, err := webhook.ParseSecrets(text); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, n := range []int{24, 64} {
		if _, err := webhook.ParseSecrets(of(n)); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

package webhook

var (
	Public     = public
	RetryAfter = retryAfter
)

const (
	MostCalls   = mostCalls
	MostPerHost = mostPerHost
)

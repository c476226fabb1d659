package main

import (
	"log/slog"
	"time"

	"exportd/api"
	"exportd/webhook"
)

// The settings, in the groups that the commands embed. A field's flag name is its variable without EXPORTD_; the help texts are the reference.
// The tag file allows the variable with _FILE, and is on everything that may hold a secret.

type databaseConfig struct {
	URL  secret `name:"database-url" file:"" placeholder:"URL" help:"Database of the jobs (the truth): postgres://user:password@host:5432/database."`
	Pool int    `name:"db-pool" placeholder:"N" help:"Connections to it; by default 6 and one for every four chunks at a time."`
}

type sourceConfig struct {
	functionConfig `embed:""`

	URL  secret `name:"source-url" file:"" placeholder:"URL" help:"Database where the export function lives, a read replica for instance; by default the database of the jobs."`
	Pool int    `name:"source-pool" placeholder:"N" help:"Connections to it; by default one for each chunk at a time, and one."`
}

// functionConfig is part of the identity of a file.
type functionConfig struct {
	Function string `name:"export-function" default:"export_rows" help:"Set-returning function (key text, effective_date date), with its schema if need be."`
}

type brokerConfig struct {
	Dispatch    string `name:"dispatch" default:"broker" choices:"broker,database" help:"broker, or database: consumers find their work in the database and no broker is needed."`
	brokerLogin `embed:""`
	Work        string        `name:"work-queue" default:"job.chunk.work" help:"Queue of the work messages."`
	Again       time.Duration `name:"republish-after" default:"5m" help:"A published chunk that nobody claimed for so long is published again, then after twice as long, and so on."`
	Backlog     int           `name:"backlog" placeholder:"N" help:"Messages kept in the work queue; by default 64 or twice the fleet's concurrency, whichever is more."`
}

// brokerLogin is what it takes to look into the parking queue.
type brokerLogin struct {
	URLs     []string `name:"broker-urls" placeholder:"URL,..." help:"Brokers, tried in turn: stomp://host:61613, stomp+ssl://host:61614."`
	User     string   `name:"broker-user" help:"Login at the broker."`
	Password secret   `name:"broker-password" file:"" help:"Password at the broker."`
	CAFile   string   `name:"broker-ca-file" placeholder:"FILE" help:"Certificates (PEM) to trust for stomp+ssl instead of the system's."`
	Parking  string   `name:"parking-queue" default:"job.chunk.parking" help:"Queue of the dead letters."`
}

func (c brokerConfig) used() bool { return c.Dispatch == "broker" }

type s3Config struct {
	Bucket    string `name:"s3-bucket" help:"Bucket of the files. Credentials come from the AWS SDK's own chain: AWS_ACCESS_KEY_ID, profiles, roles."`
	BasePath  string `name:"s3-base-path" default:"exports" help:"First part of every object key."`
	Endpoint  string `name:"s3-endpoint" placeholder:"URL" help:"Address of a store that is not AWS: http://host:port."`
	Region    string `name:"s3-region" help:"Region; by default the AWS SDK's own choice, us-east-1 with an endpoint."`
	PathStyle string `name:"s3-path-style" placeholder:"BOOL" help:"Bucket in the path and not in the host name; by default true with an endpoint."`
	Create    bool   `name:"s3-create-bucket" help:"Create the bucket if it is missing."`
	PartSize  size   `name:"part-size" default:"8MiB" help:"Multipart part and upload buffer, 5MiB to 1GiB; a consumer needs about one per chunk at a time."`
}

func (c s3Config) pathStyle() bool {
	return c.PathStyle == "true" || c.PathStyle == "" && c.Endpoint != ""
}

type workConfig struct {
	Concurrency  int           `name:"concurrency" default:"8" help:"Chunks at a time."`
	ChunkTimeout time.Duration `name:"chunk-timeout" default:"30m" help:"Hard limit of one attempt."`
	StallTimeout time.Duration `name:"stall-timeout" default:"2m" help:"An attempt ends when no byte has moved for so long since its first row."`
	Fallback     time.Duration `name:"broker-fallback" default:"30s" help:"Chunks owed for longer than this are taken from the database, whatever the broker does; 0 is never."`
	Reuse        bool          `name:"reuse-enabled" default:"true" help:"Answer a chunk by the file that an earlier one made, where the request allows it."`
	ReuseWindow  int           `name:"reuse-window-days" default:"7" help:"Files of effective dates in the last so many days are always made anew."`
}

// stopConfig is read by every process that serves.
type stopConfig struct {
	Drain time.Duration `name:"drain-timeout" default:"25s" help:"Time from SIGTERM to exit: a consumer gives back the chunks that are not done by then, an api cuts off requests."`
}

// leaseConfig is read by every process that sweeps, and must be the same in all of them.
type leaseConfig struct {
	Lease       time.Duration `name:"lease" default:"60s" help:"A claim's time limit, renewed every third of it; the time after which the chunks of a dead consumer run again."`
	MaxAttempts int           `name:"max-attempts" default:"5" help:"Attempts before a chunk is dead-lettered."`
	RetryBase   time.Duration `name:"retry-base" default:"1s" help:"Delay after the first failed attempt; doubled after each."`
	RetryMax    time.Duration `name:"retry-max" default:"5m" help:"Longest delay between attempts."`
	Sweep       time.Duration `name:"sweep-interval" default:"5s" help:"How often expired leases and unfinished jobs are looked for."`
	Retention   time.Duration `name:"retention" default:"0s" help:"Ended jobs older than this are removed from the database, never before their idempotency key; 0 keeps them."`
}

type httpConfig struct {
	Addr      string  `name:"http-addr" default:"127.0.0.1:8080" help:"Address to serve, host:port; port 0 takes a free one."`
	Tokens    string  `name:"tokens-file" placeholder:"FILE" help:"Who may call: one tenant:role:sha256-of-token a line; roles submitter and operator. Without it only loopback is served."`
	Auth      string  `name:"auth" choices:"none" help:"none: serve any address without tokens, everyone is an operator."`
	MaxChunks int     `name:"max-chunks" default:"10000" help:"Most chunks of a job."`
	MaxBody   size    `name:"max-body" default:"8MiB" help:"Longest request body."`
	RateLimit float64 `name:"rate-limit" placeholder:"N" help:"Requests a second per token, or per address when there are no tokens; by default any number."`

	tokens *api.Tokens // read from Tokens by check; nil without
}

// webhookConfig is of the calls to the callback URLs of jobs.
type webhookConfig struct {
	Secret       secret `name:"webhook-secret" file:"" placeholder:"whsec_..." help:"Signs the calls to the callbackUrl of jobs (Standard Webhooks): whsec_ and 24 to 64 bytes in base64. Several with spaces between them sign each, to change from one to the next. Without it callbackUrl is refused."`
	AllowPrivate bool   `name:"webhook-allow-private" help:"Call private, loopback and link-local addresses too, and by http; whoever may submit jobs then reaches them from here."`

	secrets *webhook.Secrets // read from Secret by check; nil without
}

type consumerHTTPConfig struct {
	Addr string `name:"http-addr" placeholder:"HOST:PORT" help:"Serve /healthz, /readyz and /metrics there; off by default."`
}

type logConfig struct {
	Format string `choices:"json,text" help:"json or text; by default json, and text on a terminal."`
	Level  string `default:"info" choices:"debug,info,warn,error" help:"debug, info, warn or error."`
}

func (c logConfig) level() slog.Level {
	var l slog.Level
	_ = l.UnmarshalText([]byte(c.Level)) // checked; info otherwise
	return l
}

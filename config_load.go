package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// commandLine is the grammar: one field per command, the logging flags for all of them.
type commandLine struct {
	Log logConfig `embed:"" prefix:"log-"`

	API      apiCommand      `cmd:"" name:"api" help:"Serve the HTTP API; publish owed chunks, sweep."`
	Consumer consumerCommand `cmd:"" help:"Work chunks: one member of the fleet."`
	Migrate  migrateCommands `cmd:"" help:"Bring the database's tables up to date, or show where they are."`
	Doctor   doctorCommand   `cmd:"" help:"Check the configuration and everything it points at, and say what is wrong."`
	Demo     demoCommand     `cmd:"" help:"Run everything on this machine with sample data; nothing needs to be configured."`
	Version  versionCommand  `cmd:"" help:"Print version, commit and Go version."`

	Healthcheck healthcheckCommand `cmd:"" help:"Exit 0 if the api or consumer beside it answers: the health check of a container."`

	Submit   submitCommand   `cmd:"" group:"client" help:"Submit a job."`
	Status   statusCommand   `cmd:"" group:"client" help:"Show a job."`
	Watch    watchCommand    `cmd:"" group:"client" help:"Watch a job until it has ended."`
	Jobs     jobsCommand     `cmd:"" group:"client" help:"List jobs."`
	Chunks   chunksCommand   `cmd:"" group:"client" help:"List the chunks of a job, or the attempts of one."`
	Download downloadCommand `cmd:"" group:"client" help:"Download the files of a job, checked by their sha256."`
	Cancel   cancelCommand   `cmd:"" group:"client" help:"Cancel jobs."`
	Redrive  redriveCommand  `cmd:"" group:"client" help:"Try the dead-lettered and cancelled chunks of jobs again."`
	Parked   parkedCommand   `cmd:"" group:"client" help:"List dead letters; look into the parking queue, or empty it."`
	Queues   queuesCommand   `cmd:"" group:"client" help:"Show the depth of the queues."`
	Audit    auditCommand    `cmd:"" group:"client" help:"Show who ordered what, and what was refused."`

	Completion completionCommand `cmd:"" help:"Print the completion script of a shell."`
}

// loaded is a command that may run.
type loaded struct {
	command
	Log     logConfig
	unknown []string // EXPORTD_ variables that no command reads
}

// load reads flags and environment, flags winning, and reports every fault of both in one go. Without a command to run it returns nil and
// the exit code.
func load(args []string, stdout, stderr io.Writer, environ []string) (*loaded, int) {
	var line commandLine
	f := &faults{}
	env := &environment{values: map[string]string{}, faults: f}
	for _, kv := range environ {
		if name, value, ok := strings.Cut(kv, "="); ok && strings.HasPrefix(name, envPrefix) {
			env.values[name] = value
		}
	}
	exited := false
	parser, err := newParser(&line, stdout, stderr,
		kong.Exit(func(int) { exited = true }),
		kong.Resolvers(env),
		collecting(f, time.Duration(0), "a duration with a unit, such as 30s or 5m"),
		collecting(f, 0, "a whole number"),
		collecting(f, 0.0, "a number"),
		collecting(f, size(0), "a size, such as 8MiB or 500000"),
		collectingBool(f),
		choosing(f),
	)
	if err != nil { // a mistake in the struct tags: every test that calls run would meet it
		fmt.Fprintf(stderr, "exportd: %v\n", err)
		return nil, exitUsage
	}
	f.flagOnly = flagOnly(parser.Model.Node)
	if len(args) == 0 {
		args = []string{"--help"}
	}
	context, err := parser.Parse(args)
	if exited {
		return nil, exitOK
	}
	if err != nil {
		f.report(stderr)
		fmt.Fprintf(stderr, "exportd: %v (%s --help shows what there is)\n", err, spoken(err))
		return nil, exitUsage
	}
	cmd, ok := context.Selected().Target.Addr().Interface().(command)
	if !ok {
		fmt.Fprintf(stderr, "exportd: %s is not a command by itself\n", context.Command())
		return nil, exitUsage
	}
	line.Log.check(f)
	cmd.check(f)
	if _, reports := cmd.(*doctorCommand); !reports && f.report(stderr) {
		return nil, exitUsage
	}
	return &loaded{command: cmd, Log: line.Log, unknown: env.unknown(parser.Model.Node)}, exitOK
}

func newParser(line *commandLine, stdout, stderr io.Writer, options ...kong.Option) (*kong.Kong, error) {
	return kong.New(line, append(options,
		kong.Name("exportd"),
		kong.Description("Exports the rows of a database function as CSV files into an object store. Every setting is a variable of the environment too; flags win."),
		kong.Writers(stdout, stderr),
		kong.ValueFormatter(helpText),
		kong.ConfigureHelp(kong.HelpOptions{NoExpandSubcommands: true, WrapUpperBound: 120}),
		kong.ExplicitGroups([]kong.Group{{Key: "client", Title: "Commands that call the API (EXPORTD_URL, EXPORTD_TOKEN):"}}),
		inOrder(),
	)...)
}

// spoken is the command that a mistake was made in.
func spoken(err error) string {
	if mistake, ok := errors.AsType[*kong.ParseError](err); ok && mistake.Context.Selected() != nil {
		return mistake.Context.Selected().FullPath()
	}
	return "exportd"
}

// choosing reads the words of a tag choices.
func choosing(f *faults) kong.Option {
	return kong.TypeMapper(reflect.TypeFor[choice](), kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
		var given string
		if err := ctx.Scan.PopValueInto("word", &given); err != nil {
			return err
		}
		word := strings.ToUpper(strings.ReplaceAll(given, "-", "_"))
		if choices := choicesOf(ctx.Value); !slices.Contains(choices, word) {
			f.addUnreadable(ctx.Value.Name, "is %q; it must be one of %s", given, strings.Join(choices, ", "))
		}
		target.SetString(word)
		return nil
	}))
}

func choicesOf(v *kong.Value) []string { return strings.Split(v.Tag.Get("choices"), ",") }

// inOrder numbers the values of flags that are told apart by their order.
func inOrder() kong.Option {
	n := 0
	return kong.TypeMapper(reflect.TypeFor[placed](), kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
		n++
		value := placed{at: n}
		if err := ctx.Scan.PopValueInto("text", &value.text); err != nil {
			return err
		}
		target.Set(reflect.ValueOf(value))
		return nil
	}))
}

const envPrefix = "EXPORTD_"

// envName is the variable of a flag: --s3-bucket is EXPORTD_S3_BUCKET.
func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// A flag tagged flagonly has no variable. A setting tagged file may be read from the file that its variable with _FILE names.
func hasVariable(f *kong.Flag) bool { return f.Name != "help" && !f.Tag.Has("flagonly") }
func hasFile(f *kong.Flag) bool     { return f.Tag.Has("file") }

func helpText(v *kong.Value) string {
	if v.Flag == nil || !hasVariable(v.Flag) {
		return v.Help
	}
	name := "$" + envName(v.Name)
	if hasFile(v.Flag) {
		name += " or " + name + "_FILE"
	}
	return strings.TrimSpace(v.Help + " (" + name + ")")
}

// flagOnly are the flags that no variable sets.
func flagOnly(root *kong.Node) map[string]bool {
	names := map[string]bool{}
	_ = kong.Visit(root, func(node kong.Visitable, next kong.Next) error {
		if flag, ok := node.(*kong.Flag); ok && !hasVariable(flag) {
			names[flag.Name] = true
		}
		return next(nil)
	})
	return names
}

// environment gives kong the values of the environment handed to run, and those of files. A variable set to nothing counts as not set.
type environment struct {
	values map[string]string
	faults *faults
}

func (e *environment) Validate(*kong.Application) error { return nil }

func (e *environment) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if !hasVariable(flag) {
		return nil, nil
	}
	name := envName(flag.Name)
	value, path := e.values[name], e.values[name+"_FILE"]
	switch {
	case !hasFile(flag) || path == "":
	case value != "":
		e.faults.addUnreadable(flag.Name, "is given twice, by %s and by %s_FILE; keep one", name, name)
	default:
		content, err := readSecret(path)
		value = strings.TrimRight(content, "\r\n")
		if err != nil {
			e.faults.addUnreadable(flag.Name, "cannot be read from the file that %s_FILE names: %v", name, err)
		} else if value == "" {
			e.faults.addUnreadable(flag.Name, "is to come from %s, but that file is empty", path)
		}
	}
	if value == "" {
		return nil, nil
	}
	return value, nil
}

// mostSecret is more than any secret has, so that a file named by mistake is not read to its end.
const mostSecret = 64 << 10

func readSecret(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, mostSecret+1))
	if err == nil && len(content) > mostSecret {
		err = fmt.Errorf("%s holds more than %d bytes, which is no secret", path, mostSecret)
	}
	return string(content), err
}

// unknown lists the variables that no command reads. Those that Kubernetes sets for a service called exportd, and those of the tests, are
// nobody's spelling mistake.
func (e *environment) unknown(root *kong.Node) (names []string) {
	known := map[string]bool{}
	kong.Visit(root, func(node kong.Visitable, next kong.Next) error {
		if flag, ok := node.(*kong.Flag); ok && hasVariable(flag) {
			known[envName(flag.Name)] = true
			known[envName(flag.Name)+"_FILE"] = hasFile(flag)
		}
		return next(nil)
	})
	for name := range e.values {
		foreign := strings.HasPrefix(name, envPrefix+"TEST_") || strings.HasPrefix(name, envPrefix+"SERVICE_") || strings.HasPrefix(name, envPrefix+"PORT")
		if !known[name] && !foreign {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// collecting makes kong note a value that cannot be read and go on, where it would stop at the first.
func collecting(f *faults, of any, shape string) kong.Option {
	t := reflect.TypeOf(of)
	inner := kong.NewRegistry().RegisterDefaults().ForType(t)
	return kong.TypeMapper(t, kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
		given := ctx.Scan.Peek()
		if err := inner.Decode(ctx, target); err != nil {
			f.addUnreadable(ctx.Value.Name, "is %q, which is not %s", given.String(), shape)
		}
		return nil
	}))
}

func collectingBool(f *faults) kong.Option {
	return kong.TypeMapper(reflect.TypeFor[bool](), boolMapper{kong.NewRegistry().RegisterDefaults().ForType(reflect.TypeFor[bool]()), f})
}

type boolMapper struct {
	kong.Mapper
	faults *faults
}

func (boolMapper) IsBool() bool { return true }

func (m boolMapper) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	given := ctx.Scan.Peek()
	if err := m.Mapper.Decode(ctx, target); err != nil {
		m.faults.addUnreadable(ctx.Value.Name, "is %q, which is neither true nor false", given.String())
	}
	return nil
}

// faults are the mistakes found in a configuration so far.
type faults struct {
	lines      []string
	flagOnly   map[string]bool // flags without a variable
	unreadable map[string]bool
}

// add notes what is wrong with a setting, named by its flag. The sentence goes on after the name, says what to do, and holds no secret.
func (f *faults) add(flag, format string, args ...any) {
	if f.unreadable[flag] {
		return // what the checks say of it would be about a value that nobody gave
	}
	name := fmt.Sprintf("%s (--%s)", envName(flag), flag)
	if f.flagOnly[flag] {
		name = "--" + flag
	}
	f.lines = append(f.lines, name+" "+fmt.Sprintf(format, args...))
}

// addUnreadable notes a value that cannot even be read.
func (f *faults) addUnreadable(flag, format string, args ...any) {
	f.add(flag, format, args...)
	if f.unreadable == nil {
		f.unreadable = map[string]bool{}
	}
	f.unreadable[flag] = true
}

func (f *faults) report(w io.Writer) bool {
	if len(f.lines) == 0 {
		return false
	}
	what := "the command line"
	for _, line := range f.lines {
		if strings.HasPrefix(line, envPrefix) {
			what = "the configuration"
		}
	}
	fmt.Fprintf(w, "exportd: %s cannot be used; nothing was started:\n", what)
	for _, line := range f.lines {
		fmt.Fprintln(w, "  "+line)
	}
	return true
}

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

func (*completionCommand) Help() string {
	return examples(`source <(exportd completion bash)    # in ~/.bashrc`, `source <(exportd completion zsh)     # in ~/.zshrc`,
		`exportd completion fish > ~/.config/fish/completions/exportd.fish`)
}

func (c *completionCommand) check(*faults) {}

func (c *completionCommand) run(_ context.Context, p *process) error {
	parser, err := newParser(&commandLine{}, p.stdout, p.stderr)
	if err != nil {
		return err
	}
	write := map[string]func([]completed) string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}[c.Shell]
	_, err = fmt.Fprint(p.stdout, write(completions(parser.Model.Node)))
	return err
}

// completed is a command as a shell completes it; the first has no name and is the program itself.
type completed struct {
	name, help string
	flags      []completedFlag
	words      []string // its own commands, or the values of its argument
}

type completedFlag struct {
	name, help string
	values     []string
	takesValue bool
	file       bool
}

func completions(root *kong.Node) (list []completed) {
	list = append(list, completedNode(root))
	for _, command := range root.Children {
		if command.Hidden {
			continue
		}
		list = append(list, completedNode(command))
	}
	return list
}

func completedNode(node *kong.Node) completed {
	c := completed{help: firstSentence(node.Help)}
	if node.Type != kong.ApplicationNode {
		c.name = node.Name
	}
	for _, flags := range node.AllFlags(true) {
		for _, f := range flags {
			flag := completedFlag{name: "--" + f.Name, help: firstSentence(f.Help), takesValue: !f.IsBool(), file: strings.Contains(f.PlaceHolder, "FILE") || f.PlaceHolder == "DIR"}
			if f.Tag.Has("choices") {
				flag.values = choicesOf(f.Value)
			}
			c.flags = append(c.flags, flag)
			if f.Tag.Negatable != "" {
				c.flags = append(c.flags, completedFlag{name: "--no-" + f.Name, help: "not: " + flag.help})
			}
		}
	}
	slices.SortFunc(c.flags, func(a, b completedFlag) int { return strings.Compare(a.name, b.name) })
	for _, child := range node.Children {
		c.words = append(c.words, child.Name)
	}
	for _, argument := range node.Positional {
		if argument.Enum != "" {
			c.words = append(c.words, argument.EnumSlice()...)
		}
	}
	return c
}

func firstSentence(help string) string {
	for _, end := range []string{". ", ": ", "; ", "("} {
		help, _, _ = strings.Cut(help, end)
	}
	return strings.TrimRight(help, ". ")
}

func names(flags []completedFlag) (list []string) {
	for _, f := range flags {
		list = append(list, f.name)
	}
	return list
}

// bashCompletion is one function: the command is the first word that is no flag.
func bashCompletion(commands []completed) string {
	var b strings.Builder
	b.WriteString("# exportd's completion for bash: source <(exportd completion bash)\n_exportd() {\n" +
		"    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command= words= i\n" +
		"    # readline takes = for a word of its own\n" +
		"    [[ $word == = ]] && word=\n" +
		"    [[ $before == = ]] && before=${COMP_WORDS[COMP_CWORD-2]}\n" +
		"    for ((i = 1; i < COMP_CWORD; i++)); do\n        case ${COMP_WORDS[i]} in\n            -*) ;;\n" +
		"            " + strings.Join(commands[0].words, "|") + ") command=${COMP_WORDS[i]}; break ;;\n        esac\n    done\n")
	b.WriteString("    case $command,$before in\n")
	for _, c := range commands {
		for _, f := range c.flags {
			switch {
			case len(f.values) > 0:
				fmt.Fprintf(&b, "        %s,%s) COMPREPLY=($(compgen -W '%s' -- \"$word\")); return ;;\n", c.name, f.name, strings.Join(f.values, " "))
			case f.file:
				fmt.Fprintf(&b, "        %s,%s) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n", c.name, f.name)
			case f.takesValue:
				fmt.Fprintf(&b, "        %s,%s) COMPREPLY=(); return ;;\n", c.name, f.name)
			}
		}
	}
	b.WriteString("    esac\n    case $command in\n")
	for _, c := range commands {
		pattern := c.name
		if pattern == "" {
			pattern = "''"
		}
		fmt.Fprintf(&b, "        %s) words='%s' ;;\n", pattern, strings.Join(append(slices.Clone(c.words), names(c.flags)...), " "))
	}
	b.WriteString("    esac\n    if [[ $word != -* ]]; then words=$(printf '%s\\n' $words | grep -v ^-); fi\n" +
		"    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n" +
		"    if [[ $command == download && $word != -* ]]; then compopt -o filenames 2>/dev/null; COMPREPLY+=($(compgen -d -- \"$word\")); fi\n" +
		"}\ncomplete -F _exportd exportd\n")
	return b.String()
}

func zshCompletion(commands []completed) string {
	var b strings.Builder
	b.WriteString("#compdef exportd\n# exportd's completion for zsh: source <(exportd completion zsh)\n_exportd() {\n    local curcontext=$curcontext state line\n" +
		"    _arguments -C")
	zshFlags(&b, commands[0].flags)
	b.WriteString(" \\\n        '1: :->command' '*:: :->rest'\n    case $state in\n    command)\n        local -a list=(")
	for _, c := range commands[1:] {
		fmt.Fprintf(&b, "\n            '%s:%s'", c.name, zshQuoted(c.help))
	}
	b.WriteString(")\n        _describe command list ;;\n    rest)\n        case $line[1] in\n")
	for _, c := range commands[1:] {
		fmt.Fprintf(&b, "        %s) _arguments", c.name)
		zshFlags(&b, c.flags)
		switch {
		case len(c.words) > 0:
			fmt.Fprintf(&b, " \\\n        '1: :(%s)'", strings.Join(c.words, " "))
		case c.name == "download":
			b.WriteString(" \\\n        '1: : ' '2: :_files -/'")
		}
		b.WriteString(" ;;\n")
	}
	b.WriteString("        esac ;;\n    esac\n}\ncompdef _exportd exportd\n")
	return b.String()
}

func zshFlags(b *strings.Builder, flags []completedFlag) {
	for _, f := range flags {
		fmt.Fprintf(b, " \\\n        '*%s[%s]", f.name, zshQuoted(f.help))
		switch {
		case len(f.values) > 0:
			fmt.Fprintf(b, ": :(%s)", strings.Join(f.values, " "))
		case f.file:
			b.WriteString(": :_files")
		case f.takesValue:
			b.WriteString(": : ")
		}
		b.WriteByte('\'')
	}
}

func zshQuoted(s string) string {
	return strings.NewReplacer("'", "", "[", "", "]", "", ":", `\:`, `\`, "").Replace(s)
}

func fishCompletion(commands []completed) string {
	var b strings.Builder
	b.WriteString("# exportd's completion for fish: exportd completion fish > ~/.config/fish/completions/exportd.fish\ncomplete -c exportd -f\n")
	for _, c := range commands {
		when := "__fish_use_subcommand"
		if c.name != "" {
			fmt.Fprintf(&b, "complete -c exportd -n __fish_use_subcommand -a %s -d '%s'\n", c.name, fishQuoted(c.help))
			when = "__fish_seen_subcommand_from " + c.name
		}
		for _, f := range c.flags {
			fmt.Fprintf(&b, "complete -c exportd -n '%s' -l %s -d '%s'", when, strings.TrimPrefix(f.name, "--"), fishQuoted(f.help))
			switch {
			case len(f.values) > 0:
				fmt.Fprintf(&b, " -x -a '%s'", strings.Join(f.values, " "))
			case f.file:
				b.WriteString(" -r -F")
			case f.takesValue:
				b.WriteString(" -x")
			}
			b.WriteByte('\n')
		}
		switch {
		case c.name != "" && len(c.words) > 0:
			fmt.Fprintf(&b, "complete -c exportd -n '%s' -a '%s'\n", when, strings.Join(c.words, " "))
		case c.name == "download":
			fmt.Fprintf(&b, "complete -c exportd -n '%s' -a '(__fish_complete_directories)'\n", when)
		}
	}
	return b.String()
}

func fishQuoted(s string) string { return strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) }

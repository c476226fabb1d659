// Manifests reads the documents of Kubernetes on standard input by Kubernetes' own types and refuses an unknown field, a wrong type, a field given twice
// and an object without a name. It asks nobody, unlike what fetches schemas. It prints how many objects there were; kinds of others (KEDA) are named.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "manifests:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, batchv1.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	objects, faults := 0, []error(nil)
	for documents := yaml.NewYAMLReader(bufio.NewReader(in)); ; {
		text, err := documents.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		object, kind, err := strict.Decode(text, nil, nil)
		switch {
		case runtime.IsNotRegisteredError(err):
			fmt.Fprintf(out, "manifests: not looked at: %s\n", kind)
			continue
		case err != nil:
			faults = append(faults, fmt.Errorf("%w in:\n%s", err, text))
			continue
		}
		objects++
		if m, err := meta.Accessor(object); err != nil || m.GetName() == "" {
			faults = append(faults, fmt.Errorf("a %s has no name", kind.Kind))
		}
	}
	if objects == 0 {
		faults = append(faults, errors.New("there is nothing to look at"))
	}
	fmt.Fprintf(out, "manifests: %d objects\n", objects)
	return errors.Join(faults...)
}

// Renders what a cluster would be given, without a cluster and without the tools: the libraries that kustomize and helm
// are made of, and nothing else of them.
//
//	render kustomize FOLDER
//	render helm CHART RELEASE NAMESPACE [VALUES-FILE...]
//	render lint CHART [VALUES-FILE...]
package main

import (
	"fmt"
	"os"
	"sort"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) == 2 && arguments[0] == "kustomize":
		return kustomize(arguments[1])
	case len(arguments) >= 4 && arguments[0] == "helm":
		return helm(arguments[1], arguments[2], arguments[3], arguments[4:])
	case len(arguments) >= 2 && arguments[0] == "lint":
		return lintChart(arguments[1], arguments[2:])
	default:
		return fmt.Errorf("it is called with kustomize FOLDER, helm CHART RELEASE NAMESPACE [VALUES...], or lint CHART [VALUES...]")
	}
}

func kustomize(folder string) error {
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		return err
	}
	text, err := resources.AsYaml()
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(text)
	return err
}

func helm(path, release, namespace string, files []string) error {
	chart, err := loader.Load(path)
	if err != nil {
		return err
	}
	given, err := values(files)
	if err != nil {
		return err
	}
	options := chartutil.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}
	// The values are checked against values.schema.json here.
	all, err := chartutil.ToRenderValues(chart, given, options, chartutil.DefaultCapabilities)
	if err != nil {
		return err
	}
	rendered, err := (engine.Engine{Strict: true}).Render(chart, all)
	if err != nil {
		return err
	}
	names := make([]string, 0, len(rendered))
	for name := range rendered {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if text := strings.TrimSpace(rendered[name]); text != "" && strings.HasSuffix(name, ".yaml") {
			fmt.Printf("---\n# Source: %s\n%s\n", name, text)
		}
	}
	// Not for a cluster, and rendered all the same: a mistake in it ends the call above.
	return nil
}

func lintChart(path string, files []string) error {
	given, err := values(files)
	if err != nil {
		return err
	}
	linter := lint.AllWithKubeVersion(path, given, "monolock", nil)
	for _, message := range linter.Messages {
		fmt.Fprintln(os.Stderr, message)
	}
	if linter.HighestSeverity >= support.WarningSev {
		return fmt.Errorf("%s does not lint", path)
	}
	return nil
}

func values(files []string) (chartutil.Values, error) {
	all := chartutil.Values{}
	for _, file := range files {
		given, err := chartutil.ReadValuesFile(file)
		if err != nil {
			return nil, err
		}
		all = chartutil.CoalesceTables(given, all)
	}
	return all, nil
}

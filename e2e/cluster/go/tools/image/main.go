// image packs files of this machine into a container image of one layer, without an engine or a registry:
// an OCI image layout in a tar archive, as `ctr images import` and `docker load` take it.
//
//	image --name remora.local/x:dev --output x.tar --entrypoint /x --user 65532 SOURCE:/destination...
//
// The same input gives the same bytes, so the digest it prints tells whether anything changed.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"runtime"
	"strings"
)

// words is a flag that may be repeated.
type words []string

func (w *words) String() string     { return strings.Join(*w, " ") }
func (w *words) Set(s string) error { *w = append(*w, s); return nil }

func main() {
	log.SetFlags(0)
	log.SetPrefix("image: ")
	var entrypoint, env words
	name := flag.String("name", "", "the image's full name with its tag")
	output := flag.String("output", "", "the archive to write")
	user := flag.String("user", "0", "the user (number) its processes run as")
	arch := flag.String("arch", runtime.GOARCH, "the architecture of its programs")
	flag.Var(&entrypoint, "entrypoint", "the program to run; repeated for its arguments")
	flag.Var(&env, "env", "NAME=value in its environment; may be repeated")
	flag.Parse()

	repository, tag, tagged := strings.Cut((*name)[strings.LastIndex(*name, "/")+1:], ":")
	if repository == "" || !tagged || tag == "" || *output == "" || len(entrypoint) == 0 || flag.NArg() == 0 {
		log.Fatal("wanted: --name REPOSITORY:TAG --output FILE --entrypoint PROGRAM SOURCE:/destination...")
	}
	files, err := readFiles(flag.Args())
	if err != nil {
		log.Fatal(err)
	}
	layer, err := packLayer(files)
	if err != nil {
		log.Fatalf("cannot pack the layer: %v", err)
	}
	layout, digest, err := describe(*name, tag, layer, settings{
		Entrypoint: entrypoint,
		Env:        append([]string{"PATH=/"}, env...),
		User:       *user,
		WorkingDir: "/",
	}, platform{Architecture: *arch, OS: "linux"})
	if err != nil {
		log.Fatalf("cannot describe the image: %v", err)
	}
	// Renamed when complete: an interrupted run leaves no half archive under the name.
	if err := os.WriteFile(*output+".new", layout, 0o644); err != nil {
		log.Fatal(err)
	}
	if err := os.Rename(*output+".new", *output); err != nil {
		log.Fatal(err)
	}
	fmt.Println(digest)
}

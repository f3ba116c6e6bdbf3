package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func entries(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	for reader := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := reader.Next()
		if err == io.EOF {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		if found[header.Name], err = io.ReadAll(reader); err != nil {
			t.Fatal(err)
		}
	}
}

func TestImage(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("#!"), 0o755); err != nil {
		t.Fatal(err)
	}
	files, err := readFiles([]string{program + ":/opt/tools/program"})
	if err != nil || len(files) != 1 || files[0].mode != 0o755 {
		t.Fatalf("files %+v, error %v", files, err)
	}
	layer, err := packLayer(files)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"opt/", "opt/tools/", "opt/tools/program"} {
		if _, ok := entries(t, layer)[name]; !ok {
			t.Errorf("the layer lacks %s", name)
		}
	}
	on := platform{Architecture: "amd64", OS: "linux"}
	config := settings{Entrypoint: []string{"/opt/tools/program"}, User: "65532"}
	archive, digest, err := describe("example.test/p:1", "1", layer, config, on)
	if err != nil {
		t.Fatal(err)
	}
	content := entries(t, archive)
	var catalogue index
	if err := json.Unmarshal(content["index.json"], &catalogue); err != nil {
		t.Fatal(err)
	}
	if len(catalogue.Manifests) != 1 || catalogue.Manifests[0].Digest != digest {
		t.Fatalf("index %+v, digest %s", catalogue, digest)
	}
	var described manifest
	if err := json.Unmarshal(content["blobs/sha256/"+digest[len("sha256:"):]], &described); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(content["blobs/sha256/"+described.Layers[0].Digest[len("sha256:"):]], layer) {
		t.Error("the manifest's layer is not the one that was packed")
	}
	_, again, err := describe("example.test/p:1", "1", layer, config, on)
	if err != nil || again != digest {
		t.Errorf("the same input gave %s and then %s (%v)", digest, again, err)
	}
}

func TestArgumentsThatNameNoFile(t *testing.T) {
	for _, argument := range []string{"program", "program:relative", "/does/not/exist:/x"} {
		if _, err := readFiles([]string{argument}); err == nil {
			t.Errorf("%q was taken", argument)
		}
	}
}

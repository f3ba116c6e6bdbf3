package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"path"
	"sort"
	"strings"
)

// file is one file of an image.
type file struct {
	path string // in the image, absolute
	mode int64
	data []byte
}

// readFiles reads what SOURCE:/destination arguments name. A program keeps its execute bits.
func readFiles(arguments []string) ([]file, error) {
	var files []file
	for _, argument := range arguments {
		source, destination, ok := strings.Cut(argument, ":")
		if !ok || !path.IsAbs(destination) {
			return nil, fmt.Errorf("%q is not SOURCE:/destination", argument)
		}
		data, err := os.ReadFile(source)
		if err != nil {
			return nil, err
		}
		status, err := os.Stat(source)
		if err != nil {
			return nil, err
		}
		mode := int64(0o644)
		if status.Mode()&0o111 != 0 {
			mode = 0o755
		}
		files = append(files, file{path: path.Clean(destination), mode: mode, data: data})
	}
	sort.Slice(files, func(i, j int) bool { return files[i].path < files[j].path })
	return files, nil
}

// packLayer makes the layer: every file after the directories above it, and no time of day in it.
func packLayer(files []file) ([]byte, error) {
	var layer bytes.Buffer
	archive := tar.NewWriter(&layer)
	known := map[string]bool{"/": true}
	for _, f := range files {
		for _, directory := range parents(f.path) {
			if known[directory] {
				continue
			}
			known[directory] = true
			header := tar.Header{Typeflag: tar.TypeDir, Name: directory[1:] + "/", Mode: 0o755}
			if err := archive.WriteHeader(&header); err != nil {
				return nil, err
			}
		}
		if err := add(archive, f.path[1:], f.mode, f.data); err != nil {
			return nil, err
		}
	}
	err := archive.Close()
	return layer.Bytes(), err
}

// parents lists the directories above a path, outermost first.
func parents(name string) []string {
	directory := path.Dir(name)
	if directory == "/" {
		return nil
	}
	return append(parents(directory), directory)
}

func add(archive *tar.Writer, name string, mode int64, data []byte) error {
	header := tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data))}
	if err := archive.WriteHeader(&header); err != nil {
		return err
	}
	_, err := archive.Write(data)
	return err
}

package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
)

// The documents of the OCI image specification, as far as an image of one layer needs them.

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type settings struct {
	Entrypoint []string `json:"Entrypoint"`
	Env        []string `json:"Env"`
	User       string   `json:"User"`
	WorkingDir string   `json:"WorkingDir"`
}

type configuration struct {
	platform
	Config settings `json:"config"`
	RootFS rootFS   `json:"rootfs"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        descriptor   `json:"config"`
	Layers        []descriptor `json:"layers"`
}

type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	Manifests     []descriptor `json:"manifests"`
}

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar"
)

// layout collects an image layout: a tar archive in which a blob's name is its digest.
type layout struct {
	buffer  bytes.Buffer
	archive *tar.Writer
}

func (l *layout) blob(mediaType string, data []byte) (descriptor, error) {
	sum := fmt.Sprintf("%x", sha256.Sum256(data))
	err := add(l.archive, "blobs/sha256/"+sum, 0o644, data)
	return descriptor{MediaType: mediaType, Digest: "sha256:" + sum, Size: len(data)}, err
}

func (l *layout) document(mediaType string, value any) (descriptor, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return descriptor{}, err
	}
	return l.blob(mediaType, data)
}

// describe writes the layout of an image and tells the digest of its manifest.
func describe(name, tag string, layer []byte, config settings, on platform) ([]byte, string, error) {
	var l layout
	l.archive = tar.NewWriter(&l.buffer)
	if err := add(l.archive, "oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return nil, "", err
	}
	packed, err := l.blob(layerType, layer)
	if err != nil {
		return nil, "", err
	}
	configured, err := l.document(configType, configuration{
		platform: on,
		Config:   config,
		// The layer is not compressed, so that its content has the digest of its blob.
		RootFS: rootFS{Type: "layers", DiffIDs: []string{packed.Digest}},
	})
	if err != nil {
		return nil, "", err
	}
	image, err := l.document(manifestType, manifest{
		SchemaVersion: 2, MediaType: manifestType, Config: configured, Layers: []descriptor{packed},
	})
	if err != nil {
		return nil, "", err
	}
	image.Platform = &on
	image.Annotations = map[string]string{
		"io.containerd.image.name":          name,
		"org.opencontainers.image.ref.name": tag,
	}
	catalogue, err := json.Marshal(index{SchemaVersion: 2, Manifests: []descriptor{image}})
	if err != nil {
		return nil, "", err
	}
	if err := add(l.archive, "index.json", 0o644, catalogue); err != nil {
		return nil, "", err
	}
	if err := l.archive.Close(); err != nil {
		return nil, "", err
	}
	return l.buffer.Bytes(), image.Digest, nil
}

package protocol_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"testing"

	"github.com/monolock-dev/monolock-go/protocol"
)

// vectors are the golden vectors that all clients share.
type vectors struct {
	Client        []vector
	ClientInvalid []vector `json:"client_invalid"`
	Server        []vector
	ServerInvalid []struct {
		Name, Hex, Error string
	} `json:"server_invalid"`
	ServerStreams []struct {
		Name, Hex string
		Frames    []frame
	} `json:"server_streams"`
	Classes []struct {
		Code  protocol.ErrorCode
		Class string
	}
}

type vector struct {
	Name, Hex string
	Frame     frame
}

type frame struct {
	Type    string
	LeaseMS uint32 `json:"lease_ms"`
	Name    string
	Token   string
	Code    protocol.ErrorCode
	Reason  string
}

func (f frame) client(t *testing.T) protocol.ClientFrame {
	switch f.Type {
	case "acquire":
		return protocol.Acquire{LeaseMS: f.LeaseMS, Name: f.Name}
	case "heartbeat":
		return protocol.Heartbeat{}
	}
	t.Fatalf("unknown client frame %q", f.Type)
	return nil
}

func (f frame) server(t *testing.T) protocol.ServerFrame {
	switch f.Type {
	case "waiting":
		return protocol.Waiting{}
	case "acquired":
		token, err := strconv.ParseUint(f.Token, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return protocol.Acquired{Token: token}
	case "error":
		return protocol.Error{Code: f.Code, Reason: f.Reason}
	}
	t.Fatalf("unknown server frame %q", f.Type)
	return nil
}

func golden(t *testing.T) vectors {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash("../../../testing/conformance/vectors.json"))
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Client) == 0 || len(v.Server) == 0 || len(v.ServerInvalid) == 0 || len(v.ServerStreams) == 0 || len(v.Classes) == 0 {
		t.Fatal("the golden vectors have lost a section")
	}
	return v
}

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGoldenClientFrames(t *testing.T) {
	for _, v := range golden(t).Client {
		b, want := unhex(t, v.Hex), v.Frame.client(t)
		if got := want.Append(nil); !reflect.DeepEqual(got, b) {
			t.Errorf("%s: encoded to %x, want %x", v.Name, got, b)
		}
		got, size, err := protocol.DecodeClient(b)
		if err != nil || size != len(b) || got != want {
			t.Errorf("%s: decoded to %#v in %d bytes, %v", v.Name, got, size, err)
		}
		if len(b) > protocol.MaxClientFrameBytes {
			t.Errorf("%s: %d bytes", v.Name, len(b))
		}
	}
}

// B38: whatever is cut off, more is asked for, and nothing else.
func TestGoldenServerFramesAtEveryCut(t *testing.T) {
	for _, v := range golden(t).Server {
		b, want := unhex(t, v.Hex), v.Frame.server(t)
		for cut := range b {
			if got, size, err := protocol.DecodeServer(b[:cut]); got != nil || size != 0 || err != nil {
				t.Errorf("%s cut at %d: %#v, %d, %v", v.Name, cut, got, size, err)
			}
		}
		got, size, err := protocol.DecodeServer(append(b[:len(b):len(b)], 0x7f))
		if err != nil || size != len(b) || got != want {
			t.Errorf("%s: decoded to %#v in %d bytes, %v", v.Name, got, size, err)
		}
		if encoded := want.Append(nil); v.Name != "error, reason that is not UTF-8" && !reflect.DeepEqual(encoded, b) {
			t.Errorf("%s: encoded to %x, want %x", v.Name, encoded, b)
		}
		if len(b) > protocol.MaxServerFrameBytes {
			t.Errorf("%s: %d bytes", v.Name, len(b))
		}
	}
}

func TestGoldenServerStreams(t *testing.T) {
	for _, v := range golden(t).ServerStreams {
		b := unhex(t, v.Hex)
		for _, f := range v.Frames {
			got, size, err := protocol.DecodeServer(b)
			if want := f.server(t); err != nil || got != want {
				t.Fatalf("%s: decoded to %#v, want %#v, %v", v.Name, got, want, err)
			}
			b = b[size:]
		}
		if len(b) != 0 {
			t.Errorf("%s: %x is left", v.Name, b)
		}
	}
}

func TestGoldenInvalidServerFrames(t *testing.T) {
	for _, v := range golden(t).ServerInvalid {
		_, size, err := protocol.DecodeServer(unhex(t, v.Hex))
		var unknown *protocol.UnknownFrameError
		switch {
		case size != 0 || err == nil:
			t.Errorf("%s: was decoded", v.Name)
		case v.Error == "zero_token" && !errors.Is(err, protocol.ErrTokenZero):
			t.Errorf("%s: %v", v.Name, err)
		case v.Error == "unknown_type" && !errors.As(err, &unknown):
			t.Errorf("%s: %v", v.Name, err)
		}
	}
}

func TestGoldenClasses(t *testing.T) {
	for _, v := range golden(t).Classes {
		if got := v.Code.IsClientError(); got != (v.Class == "client_error") {
			t.Errorf("%v is a client error: %v", v.Code, got)
		}
	}
}

func FuzzDecodeServer(f *testing.F) {
	f.Add([]byte{0x13, 0x01, 0x02, 'h', 'i'})
	f.Add([]byte{0x12, 0, 0, 0, 0, 0, 0, 0, 42})
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, size, err := protocol.DecodeServer(b)
		if size < 0 || size > len(b) || (size == 0) != (frame == nil) || err != nil && size != 0 {
			t.Fatalf("%x: %#v, %d, %v", b, frame, size, err)
		}
		if size == 0 && err == nil && len(b) >= protocol.MaxServerFrameBytes {
			t.Fatalf("%x: more is asked for than the longest frame", b)
		}
	})
}

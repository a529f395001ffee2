// Command pause holds a pod's namespaces; with arguments it is the tests' smallest container.
//
//	pause                    wait for a signal, and collect the zombies of the pod
//	pause serve <port>       answer HTTP: GET / says the host's name
//	pause get <url>          print what a URL answers
//	pause resolve <name>     print a name's addresses
//	pause write <path> <text>, pause read <path>
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	verb := strings.Join(args[:min(1, len(args))], "")
	switch {
	case verb == "":
		wait()
	case verb == "serve" && len(args) == 2:
		go wait()
		fmt.Println("serving on", args[1])
		return http.ListenAndServe(":"+args[1], http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			name, _ := os.Hostname()
			fmt.Fprintln(w, name)
		}))
	case verb == "get" && len(args) == 2:
		answer, err := http.Get(args[1])
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		_, err = io.Copy(os.Stdout, answer.Body)
		return err
	case verb == "resolve" && len(args) == 2:
		addresses, err := net.LookupHost(args[1])
		fmt.Println(strings.Join(addresses, "\n"))
		return err
	case verb == "write" && len(args) == 3:
		return os.WriteFile(args[1], []byte(args[2]), 0o644)
	case verb == "read" && len(args) == 2:
		text, err := os.ReadFile(args[1])
		fmt.Print(string(text))
		return err
	default:
		return fmt.Errorf("pause does not know %q", args)
	}
	return nil
}

func wait() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			os.Exit(0)
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}

package api

import "github.com/gin-gonic/gin"

// registerConsole mounts the console, which calls the API that it is part of.
func (a *API) registerConsole() {
	if a.Console == nil {
		return
	}
	console := gin.WrapH(a.Console(a.Handler()))
	for _, path := range []string{"/console", "/console/*path"} {
		a.engine.GET(path, console)
		a.engine.POST(path, console)
	}
}

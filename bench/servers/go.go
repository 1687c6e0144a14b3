package main

import (
	"encoding/json"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
)

type Item struct {
	ID    *int64   `json:"id"`
	Name  *string  `json:"name"`
	Price *float64 `json:"price"`
}

var lock sync.RWMutex
var data struct{ Items []Item }

func main() {
	seed, _ := os.ReadFile(os.Getenv("SEED_FILE"))
	if err := json.Unmarshal(seed, &data); err != nil {
		panic(err)
	}
	http.HandleFunc("/api/items", collection)
	http.HandleFunc("/api/items/", one)
	panic(http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), nil))
}

func collection(response http.ResponseWriter, request *http.Request) {
	if request.Method == http.MethodGet {
		lock.RLock()
		defer lock.RUnlock()
		send(response, 200, data.Items)
		return
	}
	var item Item
	if json.NewDecoder(request.Body).Decode(&item) != nil || item.ID == nil || item.Name == nil || item.Price == nil {
		http.Error(response, "Invalid body", 400)
		return
	}
	lock.Lock()
	data.Items = append(data.Items, item)
	lock.Unlock()
	send(response, 201, item)
}

func one(response http.ResponseWriter, request *http.Request) {
	id, err := strconv.ParseInt(strings.TrimPrefix(request.URL.Path, "/api/items/"), 10, 64)
	lock.RLock()
	defer lock.RUnlock()
	for _, item := range data.Items {
		if err == nil && *item.ID == id {
			send(response, 200, item)
			return
		}
	}
	http.NotFound(response, request)
}

func send(response http.ResponseWriter, status int, value any) {
	body, _ := json.Marshal(value)
	response.Header().Set("Content-Type", "application/json; charset=utf-8")
	response.WriteHeader(status)
	response.Write(body)
}

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
var items = []json.RawMessage{json.RawMessage(`{"id":1,"name":"Lamp","price":42.5}`)}
var ids = []int64{1}

func main() {
	http.HandleFunc("/api/items", collection)
	http.HandleFunc("/api/items/", one)
	panic(http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), nil))
}

func collection(response http.ResponseWriter, request *http.Request) {
	if request.Method == http.MethodGet {
		lock.RLock()
		defer lock.RUnlock()
		body, _ := json.Marshal(items)
		send(response, 200, body)
		return
	}
	var item Item
	if json.NewDecoder(request.Body).Decode(&item) != nil || item.ID == nil || item.Name == nil || item.Price == nil {
		send(response, 400, []byte(`{"detail":"Invalid body"}`))
		return
	}
	body, _ := json.Marshal(item)
	lock.Lock()
	items = append(items, body)
	ids = append(ids, *item.ID)
	lock.Unlock()
	send(response, 201, body)
}

func one(response http.ResponseWriter, request *http.Request) {
	id, err := strconv.ParseInt(strings.TrimPrefix(request.URL.Path, "/api/items/"), 10, 64)
	lock.RLock()
	defer lock.RUnlock()
	for n := range ids {
		if err == nil && ids[n] == id {
			send(response, 200, items[n])
			return
		}
	}
	send(response, 404, []byte(`{"detail":"Not found"}`))
}

func send(response http.ResponseWriter, status int, body []byte) {
	response.Header().Set("Content-Type", "application/json; charset=utf-8")
	response.WriteHeader(status)
	response.Write(body)
}

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel


class Item(BaseModel):
    id: int
    name: str
    price: float


app = FastAPI()
items = [Item(id=1, name="Lamp", price=42.5)]


@app.get("/api/items")
def list_items():
    return items


@app.get("/api/items/{item_id}")
def get_item(item_id: int):
    for item in items:
        if item.id == item_id:
            return item
    return JSONResponse({"detail": "Not found"}, 404)


@app.post("/api/items", status_code=201)
def create_item(item: Item):
    items.append(item)
    return item

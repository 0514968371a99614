"""Real products and order lines (Northwind): every product is renamed, some of them many times, while 2,155 lines
are loaded and the function is killed; in the end no line has an old name."""

import csv
import json
import random
import time

from running import DATA, Running

FOLDER = DATA / "northwind"
RENAMES = 1_000


def rows(name):
    with open(FOLDER / name, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def scan(weir, table):
    for page in weir.dynamodb.get_paginator("scan").paginate(TableName=table, ConsistentRead=True):
        yield from page["Items"]


def stale(weir):
    """Returns the lines whose copied values differ from their product's."""
    products = {item["productID"]["N"]: item for item in scan(weir, "products")}
    wrong, lines = [], 0
    for line in scan(weir, "order-lines"):
        lines += 1
        product = products[line["productID"]["N"]]
        expected = (product.get("productName"), product.get("quantityPerUnit"))
        if (line.get("productName"), line.get("productUnit")) != expected:
            wrong.append(line)
    return wrong, lines


def main():
    draw = random.Random(1996)
    products, lines = rows("products.csv"), rows("order_details.csv")
    names = {product["productID"]: product["productName"] for product in products}
    with Running("--duplicate-deliveries") as weir:
        weir.load("--table", "products", "--format", "csv", FOLDER / "products.csv", "--types", "productID:N")
        draw.shuffle(lines)
        renamed, kills, started = set(), 0, time.monotonic()
        for number, line in enumerate(lines):
            item = {"orderID": {"N": line["orderID"]}, "productID": {"N": line["productID"]}, "quantity": {"N": line["quantity"]}}
            weir.dynamodb.put_item(TableName="order-lines", Item=item)
            if number * RENAMES // len(lines) != (number + 1) * RENAMES // len(lines):
                # Every product at least once, then any.
                left = sorted(names.keys() - renamed)
                product = left[0] if left else draw.choice(sorted(names))
                renamed.add(product)
                weir.dynamodb.update_item(
                    TableName="products", Key={"productID": {"N": product}},
                    UpdateExpression="SET productName = :name",
                    ExpressionAttributeValues={":name": {"S": f"{names[product]} ({number})"}},
                )
            if number % 500 == 250:
                kills += weir.kill_function("fan-out")
        written = time.monotonic()
        assert renamed == names.keys()
        assert kills > 0, "the function was never running while products were renamed"
        weir.wait_until(lambda: not stale(weir)[0], 120, "every line to carry its product's name")
        settled = time.monotonic()
        # Records still in flight must not restore an old name.
        time.sleep(3)
        wrong, count = stale(weir)
        assert not wrong, wrong[:3]
        assert count == len(lines) == 2155, count
        # A line overwritten by hand is repaired.
        line = lines[0]
        key = {"orderID": {"N": line["orderID"]}, "productID": {"N": line["productID"]}}
        weir.dynamodb.update_item(
            TableName="order-lines", Key=key, UpdateExpression="SET productName = :name",
            ExpressionAttributeValues={":name": {"S": "by hand"}},
        )
        weir.wait_until(lambda: not stale(weir)[0], 30, "a line changed by hand to be put right")
        jobs = [item for item in scan(weir, "fan-out-jobs") if not item["done"]["BOOL"]]
        assert not jobs, json.dumps(jobs[:3])
        print(
            f"fan-out: {len(names)} products renamed {RENAMES} times while {count} lines were written in "
            f"{written - started:.1f} s; zero stale copies {settled - written:.1f} s later; each batch delivered twice, "
            f"{kills} function processes killed"
        )


if __name__ == "__main__":
    main()

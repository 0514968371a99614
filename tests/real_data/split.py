"""Splits films into a profile and items for their actors, directors and genres while a writer extends, shortens,
deletes and creates films, the function is killed and every batch is delivered twice. The parts are compared with an
independent split. Then the parts are written to, one film exceeds an item's size, and the revert assembles all."""

import copy
import decimal
import json
import pathlib
import random
import subprocess
import sys
import threading
import time

import northwind
from movies import MOVIES, canonical, to_dynamodb
from running import ROOT, WEIR

PLAN = ROOT / "examples" / "migrations" / "movies.yaml"
EACH = {"actors": "ACTOR", "directors": "DIRECTOR", "genres": "GENRE"}
PIECE = 100_000


def stored(node):
    """Returns a film as it is stored: numbers as strings without an exponent."""
    if isinstance(node, dict):
        if set(node) == {"N"}:
            return {"N": format(decimal.Decimal(str(node["N"])), "f")}
        return {name: stored(member) for name, member in node.items()}
    return [stored(member) for member in node] if isinstance(node, list) else node


def text_key(film):
    return f"MOVIE#{film['year']['N']}#{film['title']['S']}"


def cut(film):
    """Returns the items of a film, by sort key; comments here have one-byte characters."""
    pk, profile, items = {"S": text_key(film)}, copy.deepcopy(film), {}
    for attribute, name in EACH.items():
        members = profile.get("info", {"M": {}})["M"].get(attribute, {}).get("L", [])
        for number, member in enumerate(members):
            items[f"{name}#{number:06}"] = {attribute: member}
        if members:
            del profile["info"]["M"][attribute]
    comments = profile.get("comments", {}).get("S", "")
    for number in range(-(-len(comments) // PIECE)):
        items[f"COMMENTS#{number:06}"] = {"comments": {"S": comments[number * PIECE:(number + 1) * PIECE]}}
    if comments:
        del profile["comments"]
    items["PROFILE"] = profile
    return {(pk["S"], sk): item | {"pk": pk, "sk": {"S": sk}} for sk, item in items.items()}


class Films:
    def __init__(self, url):
        self.client = northwind.Shop(url).client
        self.random, self.lock, self.changes = random.Random(11), threading.Lock(), 0
        self.truth = {}

    def create(self):
        schema = lambda names: [{"AttributeName": n, "KeyType": kind} for (n, _), kind in zip(names, ["HASH", "RANGE"])]
        for table, names in {"movies": [("year", "N"), ("title", "S")], "movie-parts": [("pk", "S"), ("sk", "S")]}.items():
            self.client.create_table(
                TableName=table, BillingMode="PAY_PER_REQUEST", KeySchema=schema(names),
                AttributeDefinitions=[{"AttributeName": n, "AttributeType": t} for n, t in names],
                StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"})

    def put(self, film):
        film = stored(film)
        self.client.put_item(TableName="movies", Item=film)
        self.truth[text_key(film)] = film

    def change(self):
        """Changes a film's actors, removes a list, adds comments, or deletes or creates a film."""
        with self.lock:
            self.changes += 1
            film = copy.deepcopy(self.truth[self.random.choice(list(self.truth))])
            info, dice = film.setdefault("info", {"M": {}})["M"], self.random.random()
            if dice < 0.5:
                count = self.random.randrange(7)
                info["actors"] = {"L": [{"S": f"Actor {self.random.randrange(99)}"} for _ in range(count)]}
            elif dice < 0.6:
                info.pop(self.random.choice(list(EACH)), None)
            elif dice < 0.7:
                info["rank"] = {"N": str(self.changes)}
            elif dice < 0.8:
                film["comments"] = {"S": "c" * self.random.randrange(250_000)}
            elif dice < 0.9:
                self.put(film | {"title": {"S": f"New {self.changes}"}})
                return
            else:
                self.client.delete_item(TableName="movies", Key={n: film[n] for n in ("year", "title")})
                del self.truth[text_key(film)]
                return
            self.put(film)

    def scan(self, table):
        pages = self.client.get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
        for item in (item for page in pages for item in page["Items"]):
            if "gone" not in item.pop("_weir", {"M": {}})["M"]:
                yield item


def same(expected, found, what):
    left = {key: canonical(item) for key, item in expected.items()}
    right = {key: canonical(item) for key, item in found.items()}
    wrong = [key for key in left.keys() | right.keys() if left.get(key) != right.get(key)]
    assert not wrong, f"{what}: {len(wrong)} wrong, such as {wrong[0]}: {left.get(wrong[0])}, is {right.get(wrong[0])}"
    return len(left)


def write_to_parts(films):
    """Writes as after the cut-over: creates, changes and deletes parts and films."""
    client, changed = films.client, 0
    put = lambda item: client.put_item(TableName="movie-parts", Item=item)
    for number, (key, film) in enumerate(sorted(films.truth.items())[:90]):
        old = cut(film)
        if number % 3 == 0:
            actors = [{"S": f"Understudy {n}"} for n in range(number % 7)]
            film.setdefault("info", {"M": {}})["M"]["actors"] = {"L": actors}
            if not actors:
                del film["info"]["M"]["actors"]
        elif number % 3 == 1:
            film["seen"] = {"N": str(number)}
        new = {} if number % 3 == 2 else cut(film)
        if not new:
            del films.truth[key]
        for part in sorted(old.keys() - new.keys(), reverse=True):
            client.delete_item(TableName="movie-parts", Key={n: old[part][n] for n in ("pk", "sk")})
        for part in (part for part in new if old.get(part) != new[part]):
            put(new[part])
        changed += 1
    return changed


def run(url, folder):
    started = time.monotonic()
    films = Films(url)
    films.create()
    for film in json.loads(MOVIES.read_text(), parse_float=decimal.Decimal):
        films.put(to_dynamodb(film)["M"])
    loaded = len(films.truth)
    plan = pathlib.Path(folder) / "movies.yaml"
    plan.write_text(PLAN.read_text() + "function_seconds: 30\n")

    def weir(*arguments, expect=0):
        done = subprocess.run([WEIR, "migrate", *arguments, "--endpoint", url], cwd=folder, capture_output=True, text=True)
        assert done.returncode == expect, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + (done.stderr if expect else "")

    stop = threading.Event()

    def write():
        while not stop.wait(0.01):
            films.change()

    writer = threading.Thread(target=write)
    writer.start()
    log = open(f"{folder}/worker.log", "w")
    worker = subprocess.Popen(
        [WEIR, "migrate", "start", plan, "--endpoint", url, "--local-workers", "4", "--duplicate-deliveries",
         "--package", northwind.PACKAGE], cwd=folder, stdout=log, stderr=log)
    try:
        kills, deadline = 0, time.monotonic() + 300
        while True:
            time.sleep(0.5)
            kills += northwind.kill_instance(worker.pid) if kills < 2 else 0
            states = json.loads(weir("list", "--output", "json")) if kills else []
            if states and states[0]["phase"] not in ("preparing", "copying"):
                break
            assert time.monotonic() < deadline, pathlib.Path(log.name).read_text()[-3000:]
        compared = weir("verify", "movies").split(";")[0]
        stop.set()
        writer.join()
        switched = weir("cutover", "movies")
        expected = {key: item for film in films.truth.values() for key, item in cut(film).items()}
        parts = same(expected, {(i["pk"]["S"], i["sk"]["S"]): i for i in films.scan("movie-parts")}, "the parts")

        changed = write_to_parts(films)
        # One film exceeds an item's size: it is still one document, and blocks the revert until it is small enough.
        large = next(iter(sorted(films.truth)))
        film = films.truth[large]
        grown = film | {"comments": {"S": "x" * 450_000}}
        for key in cut(film).keys() - cut(grown).keys():
            films.client.delete_item(TableName="movie-parts", Key={"pk": {"S": key[0]}, "sk": {"S": key[1]}})
        for item in cut(grown).values():
            films.client.put_item(TableName="movie-parts", Item=item)
        key = json.dumps({name: film[name] for name in ("year", "title")})
        assert canonical(json.loads(weir("document", "movies", key))) == canonical(grown), "the large film"
        deadline = time.monotonic() + 60
        while not json.loads(weir("status", "movies", "--output", "json"))["problems"].get("unassembled"):
            assert time.monotonic() < deadline, "the large film was not noted"
            time.sleep(0.5)
        refused = weir("revert", "movies", "--timeout", "20", expect=4)
        assert "but an item has at most 409600" in refused, refused
        refused = weir("verify", "movies", expect=3)
        assert " 1 refused" in refused and "but an item has at most 409600" in refused, refused
        for key in cut(grown).keys() - cut(film).keys():
            films.client.delete_item(TableName="movie-parts", Key={"pk": {"S": key[0]}, "sk": {"S": key[1]}})
        for item in cut(film).values():
            films.client.put_item(TableName="movie-parts", Item=item)
        came_back = weir("verify", "movies").split(";")[0]
        back = weir("revert", "movies")
        found = {text_key(film): film for film in films.scan("movies")}
        assembled = same(films.truth, found, "the films after the revert")
        assert kills > 0, "the function was never killed"
        print(f"split: {loaded} films, {films.changes} changes while they were split, {kills} processes killed, "
              f"every batch delivered twice; {parts} parts as cut here")
        print(f"  {compared.strip()}\n  {switched.strip()}\n  {came_back.strip()} by the revert\n  {back.strip()}")
        print(f"  {changed} films changed through their parts, {assembled} assembled again, all equal; "
              f"{time.monotonic() - started:.0f} s")
    except BaseException:
        sys.stderr.write(pathlib.Path(log.name).read_text()[-4000:])
        raise
    finally:
        stop.set()
        writer.join()
        worker.terminate()
        worker.wait(timeout=60)
        log.close()


if __name__ == "__main__":
    northwind.main(run)

"""Real documents, edited: 5,000 random edits of films while the function is killed and each batch is delivered
twice; at 100 random times every film equals the result of an independent replay."""

import collections
import json
import random
import subprocess
import time

from running import DATA, Running, WEIR

MOVIES = DATA / "movies" / "moviedata.json"
FILMS, EDITS, TIMES = 200, 5_000, 100


def frozen_seconds(weir, advance_ms):
    """Advances the frozen clock a little, and returns its time in whole seconds."""
    return weir.clock({"advance_ms": advance_ms})["now_ms"] // 1000


def main():
    draw = random.Random(1895)
    movies = json.loads(MOVIES.read_text())[:FILMS]
    keys = [{"year": {"N": str(movie["year"])}, "title": {"S": movie["title"]}} for movie in movies]
    with Running("--duplicate-deliveries") as weir:
        weir.clock({"freeze": True})
        states = collections.defaultdict(list)
        now, kills, done = frozen_seconds(weir, 1000), 0, 0
        while done < EDITS:
            # Some edits within one second, then a few seconds pass.
            for number in range(draw.randrange(1, 40)):
                film = draw.randrange(FILMS)
                there = states[film] and states[film][-1][1] is not None
                if there and draw.random() < 0.1:
                    weir.dynamodb.delete_item(TableName="movies", Key=keys[film])
                    item = None
                else:
                    item = keys[film] | {"edit": {"N": str(done)}, "plot": {"S": movies[film]["info"].get("plot", "-")}}
                    weir.dynamodb.put_item(TableName="movies", Item=item)
                states[film].append((now, item))
                done += 1
                if done % 1000 == 500:
                    kills += weir.kill_function("versions")
                if done == EDITS:
                    break
            now = frozen_seconds(weir, draw.randrange(1, 6) * 1000)
        end = now
        history = {}

        def read():
            history.clear()
            entries = collections.defaultdict(list)
            for page in weir.dynamodb.get_paginator("scan").paginate(TableName="movies-history", ConsistentRead=True):
                for entry in page["Items"]:
                    if entry["version"]["S"] != "v0":
                        entries[entry["item"]["S"]].append(entry)
            for item, versions in entries.items():
                history[item] = sorted(versions, key=lambda entry: entry["version"]["S"])
            return sum(map(len, history.values())) >= EDITS

        weir.wait_until(read, 120, f"{EDITS} versions")
        # Redelivered records must not add a version.
        time.sleep(3)
        read()
        assert kills > 0, "the function was never running while films were edited"
        texts = [json.dumps({"title": key["title"], "year": key["year"]}, separators=(",", ":"), ensure_ascii=False) for key in keys]
        for film, changes in states.items():
            versions = history[texts[film]]
            assert [v["version"]["S"] for v in versions] == [f"v{n + 1:010}" for n in range(len(changes))], texts[film]
            assert [v.get("image", {}).get("M") for v in versions] == [item for _, item in changes], texts[film]
            assert [int(v["at"]["N"]) for v in versions] == [at for at, _ in changes], texts[film]
        start = min(changes[0][0] for changes in states.values())
        compared = 0
        for _ in range(TIMES):
            moment = draw.randrange(start, end)
            film = draw.choice([film for film, changes in states.items() if changes[0][0] <= moment])
            expected = [item for at, item in states[film] if at <= moment][-1]
            got = subprocess.run(
                [WEIR, "versions", "get", "--endpoint", weir.dynamodb_url, "--table", "movies",
                 "--key", json.dumps(keys[film]), "--as-of", str(moment)],
                capture_output=True, text=True, cwd=weir.path,
            )
            if expected is None:
                assert got.returncode == 1 and "is the deletion of the item" in got.stderr, (got.stdout, got.stderr)
            else:
                assert json.loads(got.stdout) == expected, (got.stdout, got.stderr)
            compared += 1
        check = subprocess.run(
            [WEIR, "versions", "check", "--endpoint", weir.dynamodb_url, "--table", "movies"],
            capture_output=True, text=True, cwd=weir.path,
        )
        assert check.returncode == 0, check.stdout + check.stderr
        print(
            f"versions: {EDITS} edits of {FILMS} films, one version each and no gap; as-of reads equal at {compared} random "
            f"times; each batch delivered twice, {kills} function processes killed; {check.stdout.strip()}"
        )


if __name__ == "__main__":
    main()

"""Reads archive folders with the pyspark on the path, with both of Spark's Parquet readers: its own, which decodes columns
in batches, and parquet-mr, which Hive, Glue and older Athena engines share. Writes the rows as JSON lines.

Arguments: the file to write, the columns as JSON, and folders of a table."""

import hashlib
import json
import sys
import time

from pyspark.sql import SparkSession, functions


def main(out, wanted, *places):
    wanted = json.loads(wanted)
    spark = (
        SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g").config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    with open(out, "w", encoding="utf-8") as file:
        for place in places:
            for vectorized in ("true", "false"):
                began = time.monotonic()
                spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
                frame = spark.read.option("mergeSchema", "true").parquet(place)
                # All columns are decoded; only the wanted ones are compared.
                frame.select(*(functions.count(functions.col(f"`{name}`")) for name in frame.columns)).collect()
                rows = frame.withColumn("dt", functions.col("dt").cast("string")).select(*wanted).collect()
                seconds = time.monotonic() - began
                text = lambda value: None if value is None else str(value)
                answer = {
                    "place": place, "reader": f"Spark {spark.version}" + ("" if vectorized == "true" else ", parquet-mr"),
                    "columns": frame.columns, "seconds": seconds,
                    "rows": [
                        [row["title"], hashlib.sha256(row["_item"].encode()).hexdigest(), row["i"], text(row["d38"]),
                         text(row["price_n"]), None if row["bin_b"] is None else bytes(row["bin_b"]).hex(),
                         row["flag_bool"], round(row["_deleted_at"].timestamp() * 1000),
                         list(row["_coercions"]), row["dt"]]
                        for row in rows
                    ],
                }
                file.write(json.dumps(answer) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

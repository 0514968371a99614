"""Reads archive folders with the pyspark on the path, by both of Spark's Parquet readers: its own, which decodes columns
in batches, and parquet-mr, which Hive, Glue and older Athena engines share. Each reads the files with merged columns, and
the table of `weir archive ddl --engine glue`, whose JSON is in `glue.json` beside the folder. Writes what it read as JSON
lines.

Arguments: the file to write, the columns as JSON, and folders of a table."""

import hashlib
import json
import pathlib
import sys
import time

from pyspark.sql import SparkSession, functions


def table_of(spark, place, number):
    """Creates the table of `glue.json` in Spark's Hive metastore."""
    glue = json.loads((pathlib.Path(place).parent / "glue.json").read_text(encoding="utf-8"))
    storage = glue["StorageDescriptor"]
    list_of = lambda columns: ", ".join(f"`{column['Name']}` {column['Type']}" for column in columns)
    name = f"{glue['Name']}_{number}"
    spark.sql(
        f"CREATE EXTERNAL TABLE {name} ({list_of(storage['Columns'])}) PARTITIONED BY ({list_of(glue['PartitionKeys'])}) "
        f"STORED AS PARQUET LOCATION '{storage['Location']}'"
    )
    spark.sql(f"MSCK REPAIR TABLE {name}")
    return spark.table(name)


def rows_of(frame, wanted):
    # All columns are decoded; only the wanted ones are compared.
    frame.select(*(functions.count(functions.col(f"`{name}`")) for name in frame.columns)).collect()
    text = lambda value: None if value is None else str(value)
    return [
        [row["title"], hashlib.sha256(row["_item"].encode()).hexdigest(), row["i"], text(row["d38"]),
         text(row["price_n"]), None if row["bin_b"] is None else bytes(row["bin_b"]).hex(),
         row["flag_bool"], round(row["_deleted_at"].timestamp() * 1000),
         list(row["_coercions"]), row["dt"]]
        for row in frame.withColumn("dt", functions.col("dt").cast("string")).select(*wanted).collect()
    ]


def main(out, wanted, *places):
    wanted = json.loads(wanted)
    spark = (
        SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g").config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
        .enableHiveSupport().getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    with open(out, "w", encoding="utf-8") as file:
        for number, place in enumerate(places):
            table = table_of(spark, place, number)
            merged = spark.read.option("mergeSchema", "true").parquet(place)
            for vectorized in ("true", "false"):
                spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
                frames = [(merged, ""), (table, ", Glue's table")]
                if pathlib.Path(place).parent.name == "compacted":
                    frames.append((spark.read.parquet(place), ", without options"))
                for frame, what in frames:
                    began = time.monotonic()
                    rows = rows_of(frame, wanted)
                    reader = f"Spark {spark.version}" + ("" if vectorized == "true" else ", parquet-mr") + what
                    answer = {"place": place, "reader": reader, "columns": frame.columns, "rows": rows}
                    file.write(json.dumps(answer | {"seconds": time.monotonic() - began}) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

set -eu
project=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d) && cd "$folder"
unset AWS_ENDPOINT_URL_DYNAMODB AWS_ENDPOINT_URL_S3 ARCHIVE_BUCKET ARCHIVE_PREFIX WEIR_CONTROL_TABLE WEIR_MIGRATE_HOOKS
export WEIR_TEMPLATE="$project/template.yaml" WEIR_LOG=warn
weir up --port 0 --s3-port 0 >up.log 2>&1 & up=$!
trap 'code=$?; kill $up || true; wait $up || true; [ $code = 0 ] || cat up.log ./*.txt 2>/dev/null; rm -rf "$folder"; exit $code' EXIT
trap 'exit 130' INT; trap 'exit 143' TERM HUP # dash runs no EXIT trap on signals
until [ -e .weir/running.json ]; do kill -0 $up; sleep 0.2; done
settle() { # waits until the functions have processed every record
  for _ in $(seq 100); do ! weir status --exit-code >status.txt 2>&1 || return 0; sleep 0.3; done; return 1
}

#!/usr/bin/env bash
# The AWS CLI: signatures, tables, items, expressions, automatic pages, waiters, errors, transactions, streams.
set -euo pipefail
aws() { "$TOOLS/python/bin/aws" --output text "$@"; }
same() {
  if [ "$2" != "$3" ]; then
    echo "aws cli: $1: expected '$2', got '$3'"
    exit 1
  fi
}

refused=$(AWS_SECRET_ACCESS_KEY=wrong aws dynamodb list-tables 2>&1 || true)
case "$refused" in
  *"(InvalidSignatureException)"*) ;;
  *) same "a request with a wrong secret" InvalidSignatureException "$refused" ;;
esac
refused=$(aws dynamodb list-tables --no-sign-request 2>&1 || true)
case "$refused" in
  *"(MissingAuthenticationTokenException)"*) ;;
  *) same "a request without a signature" MissingAuthenticationTokenException "$refused" ;;
esac

aws dynamodb create-table --table-name cli --billing-mode PAY_PER_REQUEST \
  --attribute-definitions AttributeName=pk,AttributeType=S AttributeName=sk,AttributeType=N \
  --key-schema AttributeName=pk,KeyType=HASH AttributeName=sk,KeyType=RANGE \
  --stream-specification StreamEnabled=true,StreamViewType=NEW_AND_OLD_IMAGES > /dev/null
aws dynamodb wait table-exists --table-name cli
same status ACTIVE "$(aws dynamodb describe-table --table-name cli --query Table.TableStatus)"
puts=$(for n in $(seq 1 20); do
  printf '{"PutRequest":{"Item":{"pk":{"S":"a"},"sk":{"N":"%s"},"even":{"BOOL":%s}}}},' "$n" \
    "$([ $((n % 2)) = 0 ] && echo true || echo false)"
done)
aws dynamodb batch-write-item --request-items "{\"cli\":[${puts%,}]}" > /dev/null
same "pages of a scan" 20 "$(($(aws dynamodb scan --table-name cli --page-size 3 --query 'length(Items)' | paste -sd+ -)))"
same "a query with a filter" 5 "$(aws dynamodb query --table-name cli --query Count \
  --key-condition-expression 'pk = :p AND sk <= :n' --filter-expression 'even = :t' \
  --expression-attribute-values '{":p":{"S":"a"},":n":{"N":"10"},":t":{"BOOL":true}}')"
same "an update" 42 "$(aws dynamodb update-item --table-name cli --key '{"pk":{"S":"a"},"sk":{"N":"1"}}' \
  --update-expression 'ADD tally :n' --expression-attribute-values '{":n":{"N":"42"}}' \
  --return-values UPDATED_NEW --query Attributes.tally.N)"
refused=$(aws dynamodb put-item --table-name cli --item '{"pk":{"S":"a"},"sk":{"N":"1"}}' \
  --condition-expression 'attribute_not_exists(pk)' 2>&1 || true)
case "$refused" in
  *"(ConditionalCheckFailedException) when calling the PutItem operation: The conditional request failed"*) ;;
  *) same "a condition that fails" ConditionalCheckFailedException "$refused" ;;
esac
aws dynamodb transact-write-items --transact-items '[
  {"Delete":{"TableName":"cli","Key":{"pk":{"S":"a"},"sk":{"N":"20"}}}},
  {"ConditionCheck":{"TableName":"cli","Key":{"pk":{"S":"a"},"sk":{"N":"19"}},"ConditionExpression":"attribute_exists(pk)"}}]'
aws dynamodb execute-transaction --transact-statements '[
  {"Statement":"INSERT INTO cli VALUE {'"'pk':'q','sk':?"'}","Parameters":[{"N":"1"}]},
  {"Statement":"EXISTS(SELECT * FROM cli WHERE pk='"'a'"' AND sk=19 AND attribute_not_exists(absent))"}]' > /dev/null
same "a page of a statement" 3 "$(aws dynamodb execute-statement --limit 3 --query 'length(Items)' \
  --statement "SELECT sk FROM cli WHERE pk = 'a' AND sk <= 10")"
same "a deletion by statement" 1 "$(aws dynamodb execute-statement \
  --statement "DELETE FROM cli WHERE pk = 'q' AND sk = 1 RETURNING ALL OLD *" --query 'Items[0].sk.N')"
same "what is left" 19 "$(aws dynamodb query --table-name cli --select COUNT --query Count \
  --key-condition-expression 'pk = :p' --expression-attribute-values '{":p":{"S":"a"}}')"
arn=$(aws dynamodbstreams list-streams --table-name cli --query 'Streams[0].StreamArn')
records=0
for shard in $(aws dynamodbstreams describe-stream --stream-arn "$arn" --query 'StreamDescription.Shards[].ShardId'); do
  iterator=$(aws dynamodbstreams get-shard-iterator --stream-arn "$arn" --shard-id "$shard" \
    --shard-iterator-type TRIM_HORIZON --query ShardIterator)
  count=$(aws dynamodbstreams get-records --shard-iterator "$iterator" --query 'length(Records)')
  records=$((records + count))
done
same "stream records" 24 "$records"
aws dynamodb delete-table --table-name cli > /dev/null
aws dynamodb wait table-not-exists --table-name cli
echo "aws cli: signatures, tables, waiters, pages, expressions, errors, transactions, statements and streams agree"

#!/bin/sh
# An answer is right if it is a script that a shell can read. Nothing of it is run.
jq --unbuffered -c '.id, .completion' | while read -r id && read -r text; do
    verdict=wrong
    printf '%s' "$text" | jq -j . | sh -n 2>/dev/null && verdict=right
    printf '{"id":%s,"verdict":"%s"}\n' "$id" "$verdict"
done

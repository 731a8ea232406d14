tls=${TLS_FOLDER:-/tls} interval=${RELOAD_INTERVAL:-30}
trap 'exit 0' TERM
old=$(cat "$tls"/* | sha256sum)
while sleep "$interval" & wait "$!"; do
  new=$(cat "$tls"/* | sha256sum)
  if [ "$new" != "$old" ] && pkill -HUP -x monolock; then
    echo "the files have changed: the server was told"
    old=$new
  fi
done

#!/usr/bin/env bash
# Backups: JSON-RPC by hand in bash, with jq, curl and sqlite3. Each tool is a function that runs in a
# subshell; what it prints is the answer, and a status other than 0 makes it an error.

set -uo pipefail
SELF=$(basename "$0")
DATA="$PWD/backups"
UPSTREAM=${UPSTREAM:-http://127.0.0.1:9}
CLOSED_PORT=${CLOSED_PORT:-9}
SECURE=${UPSTREAM/http:/https:}

PLAN='
list_jobs|ok||{}
list_jobs|ok||{}
get_job|ok||{"job":"web"}
get_job|error|not_found|{"job":"intranet"}
get_job|error|validation|{}
get_job|error|validation|{"job":"-rf"}
get_job|ok||{"job":"mail"}
job_size|ok||{"job":"web"}
job_size|error|crash|{"job":"mail"}
job_size|error|crash|{"job":"wiki"}
job_size|ok||{"job":"web"}
retention|ok||{"job":"web"}
retention|error|crash|{"job":"wiki"}
retention|ok||{"job":"mail"}
next_run|ok||{"job":"web"}
next_run|error|misconfig|{"job":"mail"}
next_run|error|misconfig|{"job":"wiki"}
snapshots|error|misconfig|{"job":"web"}
snapshots|error|misconfig|{"job":"mail"}
prune|error|misconfig|{"job":"web","keep":3}
prune|error|misconfig|{"job":"mail","keep":3}
compress|error|misconfig|{"file":"web.img"}
compress|error|misconfig|{"file":"wiki.img"}
encrypt|error|misconfig|{"file":"web.img"}
encrypt|error|misconfig|{"file":"mail.img"}
catalog_search|ok||{"word":"invoice"}
catalog_search|error|misconfig|{"word":"photo","archive":true}
catalog_search|ok||{"word":"nothing-like-this"}
catalog_tags|error|misconfig|{}
catalog_tags|error|misconfig|{}
media_label|ok||{"tape":1}
media_label|error|misconfig|{"tape":2}
media_label|error|not_found|{"tape":80}
hooks|error|misconfig|{"job":"web"}
hooks|error|misconfig|{"job":"wiki"}
notify|error|misconfig|{"text":"done"}
notify|error|misconfig|{"text":"failed"}
checksum|ok||{"job":"web"}
checksum|error|misconfig|{"job":"wiki"}
checksum|error|not_found|{"file":"/tmp/none.img"}
checksum|ok||{"job":"web"}
config_value|ok||{"key":"level"}
config_value|error|misconfig|{"key":"target"}
list_archive|error|misconfig|{"which":"weekly"}
list_archive|error|payload|{"which":"upload"}
ratio|ok||{"before":10,"after":5}
ratio|error|crash|{"before":0,"after":0}
ratio|ok||{"before":9,"after":3}
report|error|crash|{"month":"2026-11"}
report|error|crash|{"month":"2026-10"}
dedupe|error|internal|{"job":"web"}
dedupe|ok||{"job":"mail"}
dedupe|error|internal|{"job":"wiki"}
lock_state|error|internal|{}
lock_state|error|internal|{}
mount_target|error|misconfig|{"name":"nas"}
mount_target|error|misconfig|{"name":"usb"}
write_index|ok||{"entries":0}
write_index|error|down|{"entries":5000}
write_index|ok||{"entries":0}
remote_status|ok||{"site":"a"}
remote_status|error|upstream|{"site":"b"}
remote_status|error|network|{"site":"c"}
remote_status|error|network|{"site":"d"}
remote_status|error|timeout|{"site":"e"}
remote_status|error|network|{"site":"f"}
remote_status|error|quota|{"site":"g"}
remote_status|error|auth|{"site":"h"}
remote_status|ok||{"site":"a"}
replicate|error|down|{"job":"web"}
replicate|error|down|{"job":"mail"}
bucket_usage|error|upstream|{"bucket":"eu"}
bucket_usage|error|upstream|{"bucket":"us"}
bucket_usage|ok||{"bucket":"local"}
verify_remote|error|upstream|{"job":"web"}
verify_remote|error|upstream|{"job":"wiki"}
scan|ok||{"depth":1}
scan|error|timeout|{"depth":9}
scan|ok||{"depth":1}
add_job|ok||{"name":"photos","every":60}
add_job|error|conflict|{"name":"web","every":60}
add_job|error|validation|{"name":"photos","every":0}
add_job|error|validation|{"name":"my photos","every":60}
add_job|error|validation|{"name":"photos","every":"daily"}
run_job|ok||{"job":"web"}
run_job|error|state|{"job":"wiki"}
run_job|error|permission|{"job":"mail"}
restore|error|permission|{"job":"web","to":"/etc"}
restore|error|unsupported|{"job":"web","to":"s3://x"}
restore|ok||{"job":"web","to":"/tmp/r"}
match_files|ok||{"pattern":"a.*"}
match_files|error|payload|{"pattern":"a["}
drop_database|error|unknown|{"name":"x"}
last_result|ok||{"job":"web"}
last_result|hidden|misconfig|{"job":"mail"}
last_result|hidden|not_found|{"job":"none"}
quick_check|ok||{"site":"a"}
quick_check|hidden|network|{"site":"c"}
quick_check|hidden|upstream|{"site":"b"}
quick_check|hidden|timeout|{"site":"e"}
estimate|ok||{"job":"web"}
estimate|hidden|crash|{"job":"mail"}
disk_health|hidden|misconfig|{"disk":"sda"}
disk_health|hidden|misconfig|{"disk":"sdb"}
set_window|ok||{"from":1,"to":5}
set_window|hidden|validation|{"from":9,"to":5}
validate_cron|ok||{"line":"0 3 * * *"}
validate_cron|ok||{"line":"every day"}
failed_files|ok||{}
sync_offsite|ok||{"job":"mail"}
sync_offsite|hidden|network|{"job":"web"}
test_restore|ok||{"job":"web"}
test_restore|hidden|misconfig|{"job":"wiki"}
throughput|ok||{"job":"web"}
throughput|hidden|crash|{"job":"wiki"}
pause_job|ok||{"job":"web"}
pause_job|hidden|state|{"job":"mail"}
target_free|ok||{"target":"nas"}
target_free|hidden|down|{"target":"tape"}
history|ok||{"job":"web"}
history|ok||{"job":"mail"}
compare|ok||{"job":"web"}
compare|ok||{"job":"mail"}
integrity|ok||{"job":"web"}
integrity|ok||{"job":"wiki"}
search_log|ok||{"word":"panic"}
'

tools() { awk -F'|' 'NF == 4 && $1 != "drop_database" && !seen[$1]++ { print $1 }' <<<"$PLAN"; }

if [[ ${*: -1} == --plan ]]; then
  jq -cRn '[inputs | select(length > 0) | split("|") | {tool: .[0], outcome: .[1], cause: (if .[2] == "" then null else .[2] end), arguments: (.[3] | fromjson)}]' <<<"$PLAN"
  exit
fi

mkdir -p "$DATA"/{img,hooks,tapes,ledger.d}
printf '{"web":{"gb":12,"keep":"7","cron":"0 3"},"mail":{"gb":{},"keep":"30","cron":""},"wiki":{"gb":null,"cron":null}}\n' >"$DATA/jobs.json"
printf 'data\n' >"$DATA/img/web.img"
printf '{"label": "W-01"}' >"$DATA/tapes/1.json"
printf '{"label": W-02' >"$DATA/tapes/2.json"
printf 'not a gzip\n' | tee "$DATA/weekly.tgz" >"$DATA/upload.tgz"
printf '#!/bin/sh\nexit 0\n' >"$DATA/hooks/pre" && chmod 644 "$DATA/hooks/pre"
printf 'level=9\n' >"$DATA/backup.conf"
rm -f "$DATA/catalog.db" "$DATA/index.out"
sqlite3 "$DATA/catalog.db" "CREATE TABLE files (path TEXT); INSERT INTO files VALUES ('/srv/invoice-1.pdf');"
ln -s /dev/full "$DATA/index.out"

arg() { jq -er --arg key "$1" '.[$key] // empty' <<<"$ARGS"; }
need() { arg "$1" || refuse "missing parameter: $1"; }
refuse() { printf '%s\n' "$1"; exit 64; }
die() { printf '%s\n' "$1"; exit "${2:-1}"; }
job() {
  local name
  name=$(need job) || { printf '%s\n' "$name"; exit 64; }
  [[ $name =~ ^[a-z]+$ ]] || refuse "invalid job name '$name': use lower case letters"
  jq -ec --arg name "$name" '.[$name] // empty' "$DATA/jobs.json" || die "no such job: $name (try list_jobs)"
}

tool_list_jobs() { jq -c keys "$DATA/jobs.json"; }
tool_get_job() { job; }
tool_job_size() { local found; found=$(job); jq -r '"\(.gb * 1024) MB"' <<<"$found" 2>&1; }
tool_retention() { local keep; keep=$(job | jq -r '.keep // "$KEEP_DEFAULT"'); eval "echo \"keep $keep\"" 2>&1; }
tool_next_run() {
  local cron; cron=$(job | jq -r '.cron // ""')
  [[ -n $cron ]] || die "$SELF: cron table of this installation is incomplete" 78
  echo "next run: $cron"
}
tool_snapshots() { restic snapshots --tag "$(need job)" 2>&1; }
tool_prune() {
  command -v borg >/dev/null || die "ERROR borg executable not found"
  borg prune --keep-last "$(need keep)"
}
tool_compress() { (cd "$DATA/img" && zstdmt-static -19 "$(need file)"); }
tool_encrypt() {
  local key="$HOME/.backup/age.key"
  openssl enc -aes-256-cbc -pbkdf2 -pass "file:$key" -in "$DATA/img/web.img" 2>&1 | head -1
}
tool_catalog_search() {
  local db="$DATA/catalog.db" word; word=$(need word)
  [[ $(arg archive) == true ]] && db="$DATA/archive/catalog.db"
  local hits; hits=$(sqlite3 "$db" "SELECT path FROM files WHERE path LIKE '%$word%'" 2>&1) || die "catalog: $hits"
  printf '%s\n' "${hits:-0 files found}"
}
tool_catalog_tags() { sqlite3 "$DATA/catalog.db" 'SELECT name FROM tags' 2>&1; }
tool_media_label() {
  local tape; tape=$(need tape)
  (( tape < 50 )) || die "Tape $tape is not in the library (1-49)."
  jq -r .label "$DATA/tapes/$tape.json" 2>&1
}
tool_hooks() { "$DATA/hooks/pre" "$(need job)" 2>&1; }
tool_notify() { curl -sS -d "$(need text)" "${NOTIFY_WEBHOOK:?is not set, see README}" 2>&1; }
tool_checksum() {
  local file
  if file=$(arg file); then
    [[ -e $file ]] || die "'$file' doesn't exist, nothing to verify"
  else
    job >/dev/null
    file="$DATA/img/$(need job).img"
  fi
  sha256sum "$file" 2>&1
}
tool_config_value() {
  local key value; key=$(need key)
  value=$(grep "^$key=" "$DATA/backup.conf") || die "backup.conf: required setting '$key' is missing (E12)"
  echo "${value#*=}"
}
tool_list_archive() {
  local which; which=$(need which)
  [[ $which == upload ]] && { tar tzf "$DATA/upload.tgz" >/dev/null 2>&1 || die "The archive you uploaded is damaged or not a .tgz"; }
  tar tzf "$DATA/weekly.tgz" 2>&1
}
tool_ratio() { local b a; b=$(jq .before <<<"$ARGS"); a=$(jq .after <<<"$ARGS"); echo "$(( 100 * a / b )) %"; }
tool_report() { render_report "$(need month)" 2>&1; }
tool_dedupe() { [[ $(need job) == mail ]] && echo deduplicated || exit 139; }
tool_lock_state() { die "repository lock is owned by unknown session 00000000, internal state 3"; }
tool_mount_target() {
  local target="$DATA/mnt/$(need name)"
  cd "$target" 2>/dev/null || die "Backup target is not mounted on the backup server. Ask the administrator to fix /etc/fstab."
}
tool_write_index() {
  local n; n=$(arg entries || true)
  if (( ${n:-0} )); then seq "$n" >"$DATA/index.out" || die "could not write index" ; fi
  echo "index written"
}
site() {
  case $1 in
    a) echo "$UPSTREAM/ok" ;; b) echo "$UPSTREAM/503" ;; c) echo "http://127.0.0.1:$CLOSED_PORT/" ;; d) echo "http://site-d.invalid/" ;;
    e) echo "$UPSTREAM/slow" ;; f) echo "$SECURE/" ;; g) echo "$UPSTREAM/429" ;; h) echo "$UPSTREAM/401" ;;
  esac
}
tool_remote_status() { curl -fsS -m 0.4 "$(site "$(need site)")" 2>&1; }
tool_replicate() { exec 3<>"/dev/tcp/127.0.0.1/$CLOSED_PORT" || exit 1; }
tool_bucket_usage() {
  local bucket code; bucket=$(need bucket)
  [[ $bucket == local ]] && { echo "12 GB"; return; }
  code=$(curl -s -o /dev/null -w '%{http_code}' "$UPSTREAM/500")
  die "$(jq -cn --arg b "$bucket" --argjson c "$code" '{error: {bucket: $b, httpStatus: $c, reason: "object storage"}}')"
}
tool_verify_remote() { curl -sS "$UPSTREAM/truncated" | jq .items 2>&1 || die "jq could not read the reply of the remote repository"; }
tool_scan() { local d; d=$(need depth); timeout 0.1 sleep "$(( d > 5 ? 3 : 0 ))" || die "scan gave up after its time limit (status $?)"; echo "scanned $d"; }
tool_add_job() {
  local name every; name=$(need name); every=$(jq -r .every <<<"$ARGS")
  [[ $every =~ ^[0-9]+$ ]] || refuse "every: whole number of minutes expected, got \"$every\""
  [[ $name == *' '* ]] && die "Job names can't contain spaces"
  (( every > 0 )) || die "every < 1"
  jq -e --arg n "$name" 'has($n)' "$DATA/jobs.json" >/dev/null && die "job $name: already there"
  echo "job $name added"
}
tool_run_job() {
  case $(need job) in
    wiki) die "wiki: backup is running since 02:10, wait for it to finish" ;;
    mail) die "mail: only the group 'postmaster' may start this job" 77 ;;
  esac
  echo started
}
tool_restore() {
  case $(need to) in
    /etc*) die "Refusing to restore into /etc (protected path)" ;;
    s3:*) die "restore to object storage: not implemented for plain jobs" ;;
  esac
  echo restored
}
tool_match_files() {
  local out; out=$(ls "$DATA" | grep -E "$(need pattern)" 2>&1); local rc=$?
  (( rc < 2 )) || die "bad pattern: $out"
  echo "${out:-no files}"
}
tool_last_result() {
  case $(need job) in
    web) echo '{"status":"ok","warnings":0}' ;;
    mail) echo "ERROR: cannot read $DATA/results/mail.json: No such file or directory" ;;
    *) echo '{"status":"error","reason":"job does not exist"}' ;;
  esac
}
tool_quick_check() { curl -fsS -m 0.4 "$(site "$(need site)")" 2>&1 || true; }
tool_estimate() { job | jq -r '"about \(.gb * 2) minutes"' 2>&1 || true; }
tool_disk_health() { smartctl -H "/dev/$(need disk)" 2>&1 || true; }
tool_set_window() { jq -r 'if .from < .to then "window set" else "✗ not saved: window must start before it ends" end' <<<"$ARGS"; }
tool_validate_cron() { jq -c '{line, ok: (.line | test("^[0-9*]+ ")), problems: (if .line | test("^[0-9*]+ ") then [] else ["field 1: not a minute"] end)}' <<<"$ARGS"; }
tool_failed_files() { printf '2026-11-21 mail: 2 files failed (Permission denied)\n2026-11-22 mail: 0 files failed\n'; }
tool_search_log() { printf 'no lines match "%s"\n' "$(need word)"; }
tool_sync_offsite() {
  [[ $(need job) == mail ]] && { echo "sent 1,204 bytes  received 35 bytes"; return; }
  printf 'sending incremental file list\nrsync: connection unexpectedly closed (0 bytes received so far) [sender]\nrsync error: error in rsync protocol data stream (code 12) at io.c(231)\n'
}
tool_test_restore() {
  local rc=0; [[ $(need job) == web ]] || { restore-vm --dry-run 2>/dev/null; rc=$?; }
  jq -cn --argjson rc "$rc" '{ok: ($rc == 0), rc: $rc, step: "restore-vm"}'
}
tool_throughput() { local gb; gb=$(job | jq .gb); if [[ $gb == null ]]; then echo "throughput: syntax error: operand expected (error token is \"/ 60\")"; else echo "$(( gb * 1024 / 60 )) MB/min"; fi; }
tool_pause_job() { [[ $(need job) == web ]] && echo paused || echo "mail was not paused, because it is not running"; }
tool_target_free() { [[ $(need target) == nas ]] && echo "4.2 TB free" || echo '{"free":null,"error":"tape robot does not respond on /dev/sg3"}'; }
tool_history() { jq -cn --arg job "$(need job)" '[{job: $job, date: "2026-11-21", exit_code: 1, message: "disk full"}, {job: $job, date: "2026-11-22", exit_code: 0, message: ""}]'; }
tool_compare() { [[ $(need job) == web ]] && echo "no differences" || printf '3 differences\n< error.log\n> error.log.1\n> missing.txt\n'; }
tool_integrity() { [[ $(need job) == web ]] && echo "12 of 12 blocks good" || echo "10 of 12 blocks good, BAD: 4, 9"; }

reply() { jq -cn --argjson id "$1" --argjson body "$2" '{jsonrpc: "2.0", id: $id} + $body'; }
call() {
  local id=$1 name=$2 text status
  if ! declare -F "tool_$name" >/dev/null; then
    reply "$id" "$(jq -cn --arg m "Tool not found: $name" '{error: {code: -32601, message: $m}}')"
    return
  fi
  # What a tool prints on stderr goes to the log of the server.
  text=$("tool_$name" 3>&2)
  status=$?
  if (( status == 64 )); then
    reply "$id" "$(jq -cn --arg m "$text" '{error: {code: -32602, message: $m}}')"
  elif (( status )); then
    reply "$id" "$(jq -cn --arg t "${text:-$name: exit status $status}" '{result: {content: [{type: "text", text: $t}], isError: true}}')"
  else
    reply "$id" "$(jq -cn --arg t "$text" '{result: {content: [{type: "text", text: $t}]}}')"
  fi
}

while IFS= read -r line; do
  id=$(jq -c .id <<<"$line")
  [[ $id == null ]] && continue
  case $(jq -r .method <<<"$line") in
    initialize) reply "$id" "$(jq -c '{result: {protocolVersion: .params.protocolVersion, capabilities: {tools: {}}, serverInfo: {name: "backups", version: "2.4"}}}' <<<"$line")" ;;
    tools/list) reply "$id" "$(tools | jq -cRn '{result: {tools: [inputs | {name: ., inputSchema: {type: "object"}}]}}')" ;;
    tools/call) ARGS=$(jq -c '.params.arguments // {}' <<<"$line"); call "$id" "$(jq -r .params.name <<<"$line")" ;;
    *) reply "$id" '{"error": {"code": -32601, "message": "Method not found"}}' ;;
  esac
done

# Prints a configuration of curl with two requests for each recorded one: the same, and its identity in the dialect of OpenFeature. Arguments:
# `to`, the address; `at`, the directory of the answers; `client` and `server`, the keys.
def line($name; $value): "\($name) = \($value | tojson)";
def request($name; $path; $key; $data):
  line("url"; $to + $path), line("output"; $at + $name), line("header"; "X-Environment-Key: " + $key),
  line("header"; "Content-Type: application/json"), line("write-out"; "%{http_code} %{content_type} %header{etag} \($name)\n"),
  (if $data then line("data-binary"; $data | tojson) else empty end), "next";

(.request // {GET: "flags/"}) as $asked
| (input_filename | split("/")[-2:] | join("-")) as $name
| (if ($asked.key // .key) == "server" then $server else $client end) as $key
| ($asked.query // $asked) as $identity
| if $asked.GET then request($name; "api/v1/" + $asked.GET; $key; null)
  elif $asked.query then request($name; "api/v1/identities/?identifier=" + ($asked.query.identifier | @uri); $key; null)
  else request($name; "api/v1/identities/"; $key; $asked | del(.key)) end,
  request("openfeature-" + $name; "ofrep/v1/evaluate/flags"; $key;
    {context: ({targetingKey: ($identity.identifier // "nobody")} + ([$identity.traits // [] | .[] | {(.trait_key): .trait_value}] | add // {}))})

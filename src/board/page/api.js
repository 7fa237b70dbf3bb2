// Requests to the board's server. An answer that is an error throws with the server's message.

async function checked(response) {
  if (response.ok) return response;
  let text = `the board answered ${response.status}`;
  try {
    text = (await response.json()).error || text;
  } catch { /* not JSON */ }
  const error = new Error(text);
  error.status = response.status;
  throw error;
}

const url = (path, parameters) => parameters ? `${path}?${new URLSearchParams(parameters)}` : path;

export async function getJson(path, parameters) {
  return (await checked(await fetch(url(path, parameters)))).json();
}

export async function getText(path, parameters) {
  return (await checked(await fetch(url(path, parameters)))).text();
}

export async function post(path, parameters) {
  await checked(await fetch(url(path, parameters), { method: "POST", headers: { "X-Lockstep": "board" } }));
}

// Calls `changed` with the ids of what has changed ("": the list of runs), and `state` with "live" or "reconnecting".
// Returns a function that closes the connection.
export function watch(ids, changed, state) {
  const source = new EventSource(url("/events", { runs: ids.join(",") }));
  source.addEventListener("open", () => state("live"));
  source.addEventListener("error", () => state("reconnecting"));
  source.addEventListener("changed", event => changed(new Set(JSON.parse(event.data))));
  return () => source.close();
}

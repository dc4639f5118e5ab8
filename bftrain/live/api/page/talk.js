// The connection to the live run: a stream of updates, reopened whenever it ends. Requests have the token in a header.

const STORE = "bftrain token";
const QUIET_MS = 8000; // updates arrive every second: after this time without one, the connection counts as lost
const AGAIN_MS = [500, 1000, 2000, 4000, 8000, 15000];

// The token is in the fragment of the address, which browsers never send, and is removed from the address bar
export const takeToken = () => {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given === null) return false;
  keepToken(given);
  history.replaceState(null, "", location.pathname + location.search);
  return true;
};
export const keepToken = (token) => (token ? sessionStorage.setItem(STORE, token) : sessionStorage.removeItem(STORE));
export const hasToken = () => sessionStorage.getItem(STORE) !== null;

const headers = () => (hasToken() ? { authorization: `Bearer ${sessionStorage.getItem(STORE).replace(/[^\x21-\x7e]/g, "")}` } : {});

// Sends one request; returns the JSON of the answer
export const ask = async (path) => {
  const response = await fetch(path, { headers: headers(), cache: "no-store" });
  if (!response.ok) throw new Error(response.statusText);
  return response.json();
};

// Follows the live run. `hears` has: begun() before the first update of a stream, which is complete; updated(update);
// lost(why) when there is no contact; refused() when the token is wrong. Returns look(span) and begin().
export const follow = (span, hears) => {
  let current = null, timer = 0, failures = 0, stopped = false;

  const read = async (response, quiet) => {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "", first = true;
    for (;;) {
      quiet();
      const { value, done } = await reader.read();
      if (done) throw new Error("the stream ended");
      text += value;
      const parts = text.split("\n\n");
      text = parts.pop();
      for (const part of parts) {
        if (!part.startsWith("data: ")) continue;
        if (first) hears.begun();
        first = false;
        failures = 0;
        hears.updated(JSON.parse(part.slice(6)));
      }
    }
  };
  const connect = async () => {
    clearTimeout(timer);
    current?.abort();
    const mine = (current = new AbortController());
    let watchdog = 0;
    const quiet = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => mine.abort(new Error("no update arrived")), QUIET_MS);
    };
    try {
      quiet();
      const response = await fetch(`v1/watch?span=${span}`, { headers: headers(), signal: mine.signal, cache: "no-store" });
      if (mine !== current) return;
      if (response.status === 401) {
        stopped = true;
        current = null;
        clearTimeout(watchdog);
        hears.refused();
        return;
      }
      if (!response.ok) throw new Error((await response.json()).error.what);
      await read(response, quiet);
    } catch (error) {
      if (mine !== current || stopped) return; // a newer connection replaced this one
      hears.lost(error.message);
      timer = setTimeout(connect, AGAIN_MS[Math.min(failures++, AGAIN_MS.length - 1)]);
    } finally {
      clearTimeout(watchdog);
    }
  };
  const again = () => { if (!stopped) connect(); };
  addEventListener("online", again);
  connect();
  return {
    look: (seconds) => { span = seconds; again(); },
    begin: () => { stopped = false; connect(); },
  };
};

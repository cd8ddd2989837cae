const STALLED_MS = 10000, SHORTEST_MS = 500, LONGEST_MS = 15000;
let about = null, open = null, failures = 0, paused = false, seen = null, woken = () => {};

const headers = () => {
  const key = sessionStorage.getItem("key");
  return key ? {Authorization: `Bearer ${key}`} : {};
};

/* The data of server-sent events. EventSource could send no key. */
async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let held = ""; ;) {
    const {value, done} = await reader.read();
    if (done) return;
    const parts = (held + value).split("\n\n");
    held = parts.pop();
    for (const part of parts) yield part.slice("data: ".length);
  }
}

function say(state, words, countdown = "") {
  by("state").dataset.state = state;
  put(by("state-words"), words);
  put(by("countdown"), countdown);
  by("again").hidden = state !== "lost";
  document.body.classList.toggle("stale", state === "lost");
}

function meet(told) {
  by("notice").hidden = about === null || about.started === told.started;
  put(by("notice"), `The server began anew at ${clock(told.started * 1000)}; so did its counts.`);
  about = told;
  put(by("model"), about.model);
  const drafter = about.drafter ? `drafter model ${about.drafter}` : "no drafter model";
  put(by("models"), `Speculative decoding, live · ${drafter} · version ${about.version}`);
  document.title = `${about.model}: speculative decoding, live`;
  offer(about);
}

function show(look) {
  if (seen === null) invite(look);
  if (look.about) meet(look.about);
  overview(look, about);
  groups(look);
  texts(look);
  seen = Date.now();
}

/* Until a key is typed. Other requests with a wrong key are refused as well, so it is asked for here alone. */
function askKey() {
  say("paused", "Waiting for the key");
  put(by("key-words"), sessionStorage.getItem("key") ? "Another key, please: that one was refused" :
    "This server asks for its API key");
  by("key").hidden = false;
  by("key-value").focus();
  return new Promise(go => {
    by("key").onsubmit = event => {
      event.preventDefault();
      sessionStorage.setItem("key", by("key-value").value);
      by("key-value").value = "";
      by("key").hidden = true;
      go();
    };
  });
}

/* Show what comes until it ends: true where the next try needs no waiting. */
async function watch() {
  const mine = open = new AbortController();
  let timer = 0;
  const guard = () => { clearTimeout(timer); timer = setTimeout(() => mine.abort(), STALLED_MS); };
  guard();
  try {
    const answer = await fetch("live", {headers: headers(), signal: mine.signal, cache: "no-store"});
    if (answer.status === 401) {
      clearTimeout(timer);
      await askKey();
      return true;
    }
    if (!answer.ok) return false;
    for await (const data of events(answer)) {
      guard();
      failures = 0;
      show(JSON.parse(data));
      say("live", "Live");
    }
    return false;
  } finally {
    clearTimeout(timer);
    mine.abort();
  }
}

/* Wait behind a failure, each time twice as long; "Try now" ends it. */
async function rest() {
  const ms = Math.min(LONGEST_MS, SHORTEST_MS * 2 ** failures++) * (1 + Math.random() / 4), until = Date.now() + ms;
  let over = false;
  woken = () => { over = true; };
  while (!over && Date.now() < until) {
    const words = seen ? `Not reachable. Last seen at ${clock(seen)}` : "Not reachable";
    say("lost", words, `· next try in ${Math.ceil((until - Date.now()) / 1000)} s`);
    await new Promise(go => setTimeout(go, Math.min(250, Math.max(0, until - Date.now()))));
  }
}

by("again").onclick = () => woken();
by("pause").onclick = () => {
  paused = !paused;
  by("pause").textContent = paused ? "Resume" : "Pause";
  if (paused) open.abort(); else woken();
};
document.addEventListener("visibilitychange", () => document.hidden ? open.abort() : woken());
addEventListener("online", () => woken());

(async () => {
  for (;;) {
    if (paused || document.hidden) {
      say("paused", paused ? "Paused" : "Waiting");
      await new Promise(go => { woken = go; });
      continue;
    }
    const going = await watch().catch(() => false);
    if (!going && !paused && !document.hidden) await rest();
  }
})();

/* A path over the values of the last minute, each a second; where one is null, it is broken. */
function path(values, most) {
  let drawn = "", begun = false;
  values.forEach((value, place) => {
    if (value === null) { begun = false; return; }
    const x = 59 - (values.length - 1 - place), y = 20 - 19 * Math.min(1, value / most);
    drawn += `${begun ? "L" : `M${x - .5} ${y.toFixed(1)}L`}${x} ${y.toFixed(1)}`;
    begun = true;
  });
  return drawn;
}

function unit(element, number, of) {
  const text = number + of;
  if (element.dataset.text === text) return;
  element.dataset.text = text;
  element.replaceChildren(number, ...(of ? [made("small", "", of)] : []));
}

function overview(look, about) {
  const {now, whole, memory, prefix, history} = look;
  put(by("speed"), speed(now.tokens_per_s));
  put(by("speed-more"), `in the last ${Math.max(1, Math.floor(now.seconds))} s; ` +
    `${counted(whole.tokens, "token")} since it began`);
  const tokens = history.map(([each]) => each);
  by("speed-line").setAttribute("d", path(tokens, Math.max(1, ...tokens)));
  put(by("accepted"), share(now.accepted, now.drafted));
  put(by("accepted-more"), `${share(whole.accepted, whole.drafted)} over all, of ${counted(whole.drafted, "draft")}`);
  const shares = history.map(([, drafted, accepted]) => drafted ? accepted / drafted : null);
  by("accepted-line").setAttribute("d", path(shares, 1));
  put(by("a-round"), ratio(whole.tokens, whole.rounds));
  put(by("a-round-more"), `over ${counted(whole.rounds, "round")}; 1 in plain decoding`);
  unit(by("places"), figure(look.running), ` of ${figure(about.size)}`);
  const queue = `${figure(look.waiting)} of at most ${figure(about.most_waiting)} in the queue`;
  put(by("queue"), known(look.waited_s) ? `${queue}, the first for ${duration(look.waited_s)}` : "the queue is empty");
  put(by("prefix"), prefix ? share(prefix.hits, prefix.tokens) : UNKNOWN);
  put(by("prefix-more"), prefix ? `${figure(prefix.hits)} of ${counted(prefix.tokens, "token")} of prompts` :
    "none were looked up");
  const [number, name] = megabytes(memory.process_mb).split(" ");
  unit(by("memory"), number, name ? ` ${name}` : "");
  const device = known(memory.device_mb) ? `; ${megabytes(memory.device_mb)} on the device` : "";
  const back = memory.preemptions ? `; ${counted(memory.preemptions, "text")} put back` : "";
  put(by("rows"), `of the process${device}; ${counted(memory.rows, "row")} in the target’s cache${back}`);
}

function groups(look) {
  const several = look.running > look.groups.length;
  const parts = several ? look.groups.map(({name, texts, drafted, accepted}) =>
    `${name} × ${figure(texts)}${drafted ? `, ${share(accepted, drafted)} accepted` : ""}`) : [];
  if (by("groups").dataset.text === parts.join("\n")) return;
  by("groups").dataset.text = parts.join("\n");
  by("groups").replaceChildren(...parts.map(part => made("li", "", part)));
}

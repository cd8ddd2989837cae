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
  put(by("speed-more"), `over the last ${figure(now.seconds)} s; ${counted(whole.tokens, "token")} since it began`);
  by("speed-line").setAttribute("d", path(history.map(([tokens]) => tokens), Math.max(1, ...history.map(([tokens]) => tokens))));
  put(by("accepted"), share(now.accepted, now.drafted));
  put(by("accepted-more"), `${share(whole.accepted, whole.drafted)} over all, of ${counted(whole.drafted, "draft")}`);
  by("accepted-line").setAttribute("d", path(history.map(([, drafted, accepted]) => drafted ? accepted / drafted : null), 1));
  put(by("a-round"), ratio(whole.tokens, whole.rounds));
  put(by("a-round-more"), `in ${counted(whole.rounds, "round")} of a text; plain decoding has 1`);
  unit(by("places"), figure(look.running), ` of ${figure(about.size)}`);
  put(by("queue"), look.waiting ? `${figure(look.waiting)} of at most ${figure(about.most_waiting)} waiting, the first for ` +
    duration(look.waited_s ?? 0) : "nobody waits");
  put(by("prefix"), prefix ? share(prefix.hits, prefix.tokens) : UNKNOWN);
  put(by("prefix-more"), prefix ? `${figure(prefix.hits)} of ${counted(prefix.tokens, "token")} of prompts` :
    "not counted by this server");
  const [number, name] = megabytes(memory.process_mb).split(" ");
  unit(by("memory"), number, name ? ` ${name}` : "");
  put(by("rows"), (known(memory.device_mb) ? `process; ${megabytes(memory.device_mb)} on the device; ` : "process; ") +
    `${counted(memory.rows, "row")} in the target’s cache`);
}

function groups(look) {
  const several = look.groups.length > 1 || look.running > look.texts.length;
  const parts = several ? look.groups.map(group =>
    `${group.name} × ${figure(group.texts)}${group.drafted ? `, ${share(group.accepted, group.drafted)} accepted` : ""}`) : [];
  if (by("groups").dataset.text === parts.join("\n")) return;
  by("groups").dataset.text = parts.join("\n");
  by("groups").replaceChildren(...parts.map(part => made("li", "", part)));
}

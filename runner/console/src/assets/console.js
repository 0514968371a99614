// Updates an open page from server-sent events. Without this script, the page is complete but static.
"use strict";

const main = document.getElementById("main");
const connection = document.getElementById("connection");
let source = null;
let loading = false;

// Reloads the page and replaces the content of <main>. Keeps focus, open details and the reader's input.
async function reload() {
  const edited = main.querySelector("textarea:focus, input:focus, select:focus, [data-edited]");
  if (loading || edited) return;
  loading = true;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById("main");
    if (!fresh) return;
    const focused = main.contains(document.activeElement) ? document.activeElement.id : "";
    const open = [...main.querySelectorAll("details[open][id]")].map((it) => it.id);
    main.replaceChildren(...fresh.childNodes);
    // The head is not replaced, so that its buttons keep focus; its clock is updated as a figure.
    const clock = page.querySelector("header [data-figure]");
    if (clock) figures(JSON.stringify({ [clock.dataset.figure]: clock.textContent }));
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  } catch {
    say("the console does not answer; the page shows an earlier state");
  } finally {
    loading = false;
  }
}

// Replaces figures: the data maps the names of figures to their new values.
function figures(data) {
  for (const [name, text] of Object.entries(JSON.parse(data))) {
    for (const it of document.querySelectorAll(`[data-figure="${CSS.escape(name)}"]`)) {
      if (it.textContent !== text) it.textContent = text;
    }
  }
}

// Shows the state of the connection as the last part of the footer, whose parts are joined by " · ".
function say(text) {
  const part = ` · ${text}`;
  if (connection.textContent !== part) connection.textContent = part;
}

function connect() {
  if (source || !main.dataset.events || document.hidden) return;
  source = new EventSource(main.dataset.events);
  source.addEventListener("open", () => say("live"));
  source.addEventListener("error", () => say("not connected; trying again"));
  source.addEventListener("figures", (event) => figures(event.data));
  source.addEventListener("reload", reload);
}

// A browser limits the connections to one address, so a hidden page closes its connection.
function pause() {
  source?.close();
  source = null;
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) pause();
  else {
    reload();
    connect();
  }
});
main.addEventListener("input", (event) => event.target.setAttribute("data-edited", ""));
connect();

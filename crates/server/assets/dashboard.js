// The list of requests as it is now, every few seconds, for as long as somebody wants to see that.
const choice = document.getElementById("live-choice");
const live = document.getElementById("live");
const PAUSE = 3000;
let timer = null;

async function renew() {
  clearTimeout(timer);
  if (!live.checked) return;
  const list = document.getElementById("list");
  // Whoever is at a line of it with the keyboard stays there.
  if (!list.contains(document.activeElement)) {
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" } });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const next = page.getElementById("list");
      if (next) list.replaceWith(next);
      // Whoever was signed out meanwhile is shown so; anything else may be better the next time.
      else if (page.querySelector("form[action$='/sign-in']")) location.reload();
    } catch {
      // The gateway is away for a moment; the next try may find it.
    }
  }
  clearTimeout(timer);
  timer = setTimeout(renew, PAUSE);
}

if (choice) {
  choice.hidden = false;
  live.addEventListener("change", renew);
}

// The list of requests as it is now, every few seconds, for as long as somebody wants to see that.
const choice = document.getElementById("live-choice");
const live = document.getElementById("live");
const PAUSE = 3000;

async function renew() {
  if (!live.checked) return;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const list = page.getElementById("list");
    // Whoever was signed out meanwhile is shown so.
    if (!list) return location.reload();
    document.getElementById("list").replaceWith(list);
  } catch {
    // The gateway is away for a moment; the next try may find it.
  }
  setTimeout(renew, PAUSE);
}

if (choice) {
  choice.hidden = false;
  live.addEventListener("change", renew);
}

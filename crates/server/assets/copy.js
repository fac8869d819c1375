// Shows the button only where it works; without it the code can be selected and copied by hand.
const button = document.getElementById("copy");
const field = document.getElementById("code");
if (navigator.clipboard) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(field.value);
    document.getElementById("copied").textContent = "Copied.";
  });
}

"""Tables, figures and the HTML report, drawn from run directories only."""

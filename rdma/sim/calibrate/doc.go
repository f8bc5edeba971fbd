// Package calibrate fits the constants of the simulated RNIC to two published
// measurements, by running the simulator itself on their micro-benchmark, and
// tells the residual of every point. The result is the profile sim.ConnectX6;
// what the model says of any other figure is a prediction.
package calibrate
